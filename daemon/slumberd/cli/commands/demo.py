"""`slumberd demo`: the path from episodes to facts on a small story; `--serve` runs its daemon."""

from __future__ import annotations

import asyncio
import io
import socket
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import orjson
import typer

from slumberd.cli import demo_data as sample
from slumberd.cli.commands.facts import COLUMNS, row
from slumberd.cli.commands.importing import ImportTally, put_records
from slumberd.cli.output import plural, print_table
from slumberd.cli.own_installation import install_command, own_program
from slumberd.cli.setup import daemon_logs, interfaces_of, logs, stop_on_signals
from slumberd.clock import SystemClock
from slumberd.daemon.daemon import run_until
from slumberd.daemon.one_operation import run_operation
from slumberd.daemon.rules import rules_of
from slumberd.daemon.startup import make_daemon
from slumberd.daemon.stores import facts_of, memory_of
from slumberd.daemon.systemd import Notifier
from slumberd.integrations.interchange.episode_lines import read_episode_lines
from slumberd.logs.output import DeltaLines
from slumberd.model.episode import Episode, is_part_of
from slumberd.model.errors import UsageError
from slumberd.model.fact import Fact, FactPattern
from slumberd.model.firing import Record
from slumberd.model.record import Break
from slumberd.operations.caller import Right
from slumberd.rules.file_access import is_installed
from slumberd.rules.rule_loader import RuleSet
from slumberd.rules.settings import Settings, load_settings
from slumberd.web.http.access import hash_of, new_token

ADDRESS = "127.0.0.1:0"
"""Only programs of this machine can connect, at a port that is free."""

NAME = "demo"
"""What the audit calls the person who signs in."""

_TOKENS = "tokens.yaml"


def write_access(config: Path) -> str:
    """Let a configuration serve the console to an operator, and return the operator's token.

    Args:
        config: The configuration, which has no section ``serve`` yet.
    """
    token = new_token()
    rights = [right.value for right in Right]
    entry = {"name": NAME, "sha256": hash_of(token), "rights": rights}
    file = config.parent / _TOKENS
    file.touch(mode=0o600)
    file.write_bytes(orjson.dumps({"tokens": [entry]}))
    section = {
        "enabled": True,
        "socket": None,
        "address": ADDRESS,
        "tokens_file": str(file.resolve()),
    }
    with config.open("ab") as stream:
        stream.write(b"serve: " + orjson.dumps(section) + b"\n")
    return token


def check_serving(settings: Settings) -> None:
    """Check that the console can be served.

    Raises:
        ExtraMissingError: The extra ``serve`` is not installed.
    """
    interfaces_of(settings)


def serve_until_signal(config: Path, token: str) -> None:
    """Run the daemon until SIGINT or SIGTERM; print where to sign in, and how.

    Args:
        token: The token to print.
    """
    clock = SystemClock()

    def load() -> tuple[Settings, RuleSet]:
        settings = load_settings(config, overrides={}, environ={})
        return settings, rules_of(settings)

    def print_address(sockets: Sequence[socket.socket]) -> None:
        host, port = sockets[0].getsockname()
        print(f"open      http://{host}:{port}/console/")
        print(f"token     {token}")
        print("stop      Ctrl-C", flush=True)

    settings, rules = load()
    with daemon_logs(settings, clock) as logs:
        daemon = make_daemon(
            settings,
            rules,
            load,
            clock=clock,
            logs=logs.lines,
            notifier=Notifier(None, None),
            interfaces=interfaces_of(settings, print_address),
        )
        run_until(stop_on_signals, daemon)


CLOCK = SystemClock()
EARLIER = datetime(2025, 3, 3, 20, tzinfo=UTC)
"""Monday evening: Mira has not moved yet."""
HOME = FactPattern(user="mira", predicate="lives_in")

TRIPLE = ("subject", "predicate", "object")
STATED = "m10"
"""An episode whose host stated a triple."""

KINDS = {
    "add": ("new", "m01"),
    "update": ("replaces an older fact", "m10"),
    "delete": ("no longer holds", "p04"),
    "noop": ("changes nothing", "p13"),
    "quarantine": ("cannot be read, is set aside", "p09"),
}
"""Of each kind of delta: its meaning, and an episode that makes one."""


def demo(
    keep: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Keep all files in this new directory.")
    ] = None,
    serve: Annotated[
        bool, typer.Option("--serve", help="Then show the story in the web console.")
    ] = False,
) -> None:
    """Show the path on a small story: episodes, a firing, facts, and the audit.

    The command needs no set-up. It leaves no files behind, unless --keep is given.

    With --serve, a daemon then serves the web console until Ctrl-C. Only programs of this machine
    can connect. The command prints the address, and a token to sign in with.
    """
    with _directory(keep) as directory:
        config = sample.write_files(directory)
        token = write_access(config) if serve else ""
        settings = load_settings(config, overrides={}, environ={})
        check_serving(settings)
        with logs(settings, CLOCK) as log:
            asyncio.run(_show_story(settings, log))
        if serve:
            _print_heading("The web console")
            serve_until_signal(config, token)
    _print_next_commands(keep, served=serve)


@contextmanager
def _directory(keep: Path | None) -> Iterator[Path]:
    if keep is None:
        with tempfile.TemporaryDirectory(prefix="slumberd-demo-") as name:
            yield Path(name)
        return
    if keep.exists() and (not keep.is_dir() or any(keep.iterdir())):
        raise UsageError(f"{str(keep)!r} exists and is not empty; give --keep a new directory")
    yield keep


async def _show_story(settings: Settings, log: DeltaLines) -> None:
    print("Four people talk to two agents, a concierge and a kitchen help. Each conversation turn")
    print("is an episode. At night two rules read the new episodes and promote facts.")
    for name in sample.DAYS:
        await _put_day(settings, name)
        _print_firings(await _fire(settings, log))
    print("\nread counts an episode once, and once more for each further triple in it.")
    async with facts_of(settings, CLOCK, settings.facts_path) as facts:
        records = await facts.reads.records()
        current = await facts.query(FactPattern())
        home = await facts.query(HOME)
        earlier = await facts.query(HOME, valid_at=EARLIER)
        verified = await facts.verify()
    _print_heading("An episode, its rule and its fact")
    _print_path(current)
    _print_heading("Facts from text alone")
    _print_extracted(current)
    _print_heading("What the deltas did")
    _print_deltas(records)
    _print_heading("The current facts")
    print_table(COLUMNS, [row(fact) for fact in sorted(current, key=_sort_key)])
    _print_heading(f"Where Mira lives: now, and as of {EARLIER:%A evening}")
    print_table(COLUMNS, [row(fact) for fact in (*home, *earlier)])
    _print_heading("The audit")
    _print_verification(*verified)


async def _put_day(settings: Settings, name: str) -> None:
    records = list(read_episode_lines(io.BytesIO(sample.day(name))))
    tally = ImportTally(keep=True)
    memory = memory_of(settings, CLOCK)
    await put_records(memory.put_many, records, tally)
    await memory.close()
    counts = tally.counts
    _print_heading(f"{name.capitalize()}: {counts.new} new episodes, {counts.changed} edited")


async def _fire(settings: Settings, log: DeltaLines) -> list[dict[str, Any]]:
    answer = await run_operation(settings, "fire", {}, clock=CLOCK, logs=log)
    reports: list[dict[str, Any]] = answer["reports"]
    return reports


def _print_firings(reports: Sequence[dict[str, Any]]) -> None:
    counts = [report["channels"]["facts"] for report in reports]
    rows = [
        [*report["firing_ids"], *found.values()]
        for report, found in zip(reports, counts, strict=True)
    ]
    print_table(["firing", *counts[0]], rows)


def _print_path(current: Sequence[Fact]) -> None:
    """Print how an episode became a fact whose triple its host stated."""
    episode = _episodes()[STATED]
    fact = next(fact for fact in current if fact.id == STATED)
    said = " ".join(str(fact.payload[part]) for part in TRIPLE)
    print(f"text      {episode.content}")
    print(f"metadata  {orjson.dumps(episode.metadata).decode()}, from the host")
    print("rule      profile, which selects episodes with a predicate")
    print(f"fact      {fact.id}: {said}")


def _print_extracted(current: Sequence[Fact]) -> None:
    """Print the facts that the rule with extraction found in sentences."""
    print("These episodes have no metadata. The rule 'sentences' extracts plain English sentences.")
    contents = {id: episode.content for id, episode in _episodes().items() if id[0] == "o"}
    rows = [
        (fact.id, contents[whole], *(fact.payload[part] for part in TRIPLE))
        for whole in contents
        for fact in current
        if is_part_of(fact.id, whole)
    ]
    print_table(("id", "text", *TRIPLE), rows)


def _sort_key(fact: Fact) -> tuple[str, ...]:
    return fact.user, fact.agent, str(fact.payload.get("predicate")), fact.id


def _print_deltas(records: Sequence[Record]) -> None:
    contents = {id: episode.content for id, episode in _episodes().items()}
    rows = []
    for kind, (meaning, episode_id) in KINDS.items():
        found = [record for record in records if record.kind == kind]
        example = next(r for r in found if episode_id in r.source_episode_ids)
        rows.append((kind, len(found), meaning, _describe(example), contents[episode_id]))
    print_table(("delta", "count", "meaning", "example", "its content"), rows)


def _episodes() -> dict[str, Episode]:
    """Return the newest version of each episode, by id."""
    days = (read_episode_lines(io.BytesIO(sample.day(name))) for name in sample.DAYS)
    return {episode.id: episode for day in days for record in day for episode in record.episodes}


def _describe(record: Record) -> str:
    words = [*record.source_episode_ids]
    if record.replaces:
        words.append(f"replaces {', '.join(record.replaces)}")
    if record.reason:
        words.append(f"({record.reason})")
    return " ".join(words)


def _print_verification(rows: int, head: str, broken: Break | None) -> None:
    if broken:  # impossible: the ledger is a second old
        raise RuntimeError(broken.problem)
    print(f"verified: {plural(rows, 'row')}, their chain and their facts; head {head[:16]}")


def _print_next_commands(keep: Path | None, *, served: bool) -> None:
    _print_heading("Next")
    program = own_program()
    commands = {}
    if not served and not is_installed("serve"):
        commands[install_command("serve")] = "installs what shows it in a browser"
    if not served:
        commands[f"{program} demo --serve"] = "shows the same in a browser"
    if keep is None:
        commands[f"{program} demo --keep DIR"] = "keeps these files, for you to explore"
    else:
        config = f"--config {keep / 'slumberd.yaml'}"
        print(f"{program} facts --user priya {config}")
        print(f"{program} audit ls --kind noop {config}")
    commands[f"{program} --help"] = "lists the commands; README.md says how to install the service"
    width = max(map(len, commands))
    for command, does in commands.items():
        print(f"{command:<{width}}    {does}")


def _print_heading(text: str) -> None:
    print(f"\n{text}")
    print("-" * len(text))
