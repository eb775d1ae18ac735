"""`slumberd demo`: the whole path, on a small story."""

from __future__ import annotations

import asyncio
import io
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import typer

from slumberd.cli import demo_data as sample
from slumberd.cli.commands.episodes import Tally, put_lines
from slumberd.cli.commands.facts import COLUMNS, row
from slumberd.cli.context import logs
from slumberd.cli.jsonl import Line, read_lines
from slumberd.cli.output import print_table
from slumberd.cli.wording import plural
from slumberd.clock import SystemClock
from slumberd.config.settings import Settings, load_settings
from slumberd.errors import UsageError
from slumberd.model.fact import Fact, FactPattern
from slumberd.model.record import Record
from slumberd.observability.logs import DeltaLines
from slumberd.service.composition import facts_of, memory_of
from slumberd.service.daemon import perform
from slumberd.storage.facts.store import SQLiteFactStore

CLOCK = SystemClock()
EARLIER = datetime(2025, 3, 3, 20, tzinfo=UTC)
"""Monday evening: Mira has not moved yet."""

KINDS = {
    "add": ("new", "m01"),
    "update": ("takes the place of an older one", "m10"),
    "delete": ("no longer holds", "p04"),
    "noop": ("changes nothing", "p13"),
    "quarantine": ("cannot be read, is set aside", "p09"),
}
"""Of each kind of delta: what it means, and an episode that made one."""


def demo(
    keep: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Keep everything, in a new directory.")
    ] = None,
) -> None:
    """Show the whole path on a small story: episodes in, a firing, facts out, and the audit.

    Needs no set-up and leaves nothing behind, unless --keep is given.
    """
    with _directory(keep) as directory:
        config = sample.write_files(directory)
        settings = load_settings(config, overrides={}, environ={})
        with logs(settings, CLOCK) as log:
            asyncio.run(_tell(settings, log))
    _tell_what_next(keep)


@contextmanager
def _directory(keep: Path | None) -> Iterator[Path]:
    if keep is None:
        with tempfile.TemporaryDirectory(prefix="slumberd-demo-") as name:
            yield Path(name)
        return
    if keep.exists() and (not keep.is_dir() or any(keep.iterdir())):
        raise UsageError(f"{str(keep)!r} is there already; --keep wants a new directory")
    yield keep


async def _tell(settings: Settings, log: DeltaLines) -> None:
    print("Three people talk to two agents, a concierge and a kitchen help. Each conversation turn")
    print("is an episode. At night the rule 'profile' reads what is new and keeps what it says.")
    for name in sample.DAYS:
        await _live(settings, name)
        _tell_firing(await _sleep(settings, log))
    async with facts_of(settings, CLOCK, settings.facts_path) as facts:
        await _tell_facts(facts)


async def _live(settings: Settings, name: str) -> None:
    lines = list(read_lines(io.BytesIO(sample.day(name))))
    tally = Tally(keep=True)
    memory = memory_of(settings, CLOCK)
    await put_lines(memory, lines, tally)
    await memory.close()
    new, changed, _ = tally.counts
    _tell_heading(f"{name.capitalize()}: {new} new episodes, {changed} edited")


async def _sleep(settings: Settings, log: DeltaLines) -> dict[str, Any]:
    answer = await perform(settings, "fire", {}, clock=CLOCK, logs=log)
    report: dict[str, Any] = answer["reports"][0]
    return report


def _tell_firing(report: dict[str, Any]) -> None:
    (counts,) = report["channels"].values()
    print_table(["firing", *counts], [[*report["firing_ids"], *counts.values()]])


async def _tell_facts(facts: SQLiteFactStore) -> None:
    _tell_heading("What the deltas did")
    _tell_deltas(await facts.records())
    _tell_heading("The facts that stand")
    standing = await facts.query(FactPattern())
    print_table(COLUMNS, [row(fact) for fact in sorted(standing, key=_place)])
    _tell_heading(f"Where Mira lives: now, and as of {EARLIER:%A evening}")
    home = FactPattern(user="mira", predicate="lives_in")
    then = await facts.query(home, valid_at=EARLIER)
    print_table(COLUMNS, [row(fact) for fact in (*await facts.query(home), *then)])
    _tell_heading("The audit")
    await _tell_audit(facts)


def _place(fact: Fact) -> tuple[str, ...]:
    return fact.user, fact.agent, str(fact.payload.get("predicate")), fact.id


def _tell_deltas(records: Sequence[Record]) -> None:
    said = {line.episode.id: line.episode.content for line in _lines() if line.episode}
    rows = []
    for kind, (meaning, episode_id) in KINDS.items():
        found = [record for record in records if record.kind == kind]
        example = next(r for r in found if episode_id in r.source_episode_ids)
        rows.append((kind, len(found), meaning, _told(example), said[episode_id]))
    print_table(("delta", "count", "meaning", "for instance", "which said"), rows)


def _lines() -> Iterator[Line]:
    for name in sample.DAYS:
        yield from read_lines(io.BytesIO(sample.day(name)))


def _told(record: Record) -> str:
    words = [*record.source_episode_ids]
    if record.replaces:
        words.append(f"replaces {', '.join(record.replaces)}")
    if record.reason:
        words.append(f"({record.reason})")
    return " ".join(words)


async def _tell_audit(facts: SQLiteFactStore) -> None:
    rows, head, broken = await facts.verify()
    if broken:  # never: the ledger is a second old
        raise RuntimeError(broken.problem)
    what = "their chain and the facts that follow from them"
    print(f"verified: {plural(rows, 'row')}, {what}; head {head[:16]}")


def _tell_what_next(keep: Path | None) -> None:
    _tell_heading("Next")
    if keep is None:
        print("slumberd demo --keep DIR    keeps all this, to look around in")
    else:
        config = f"--config {keep / 'slumberd.yaml'}"
        print(f"slumberd facts --user priya {config}")
        print(f"slumberd audit ls --kind noop {config}")
    print(
        "slumberd --help             lists the commands; README.md says how to install the service"
    )


def _tell_heading(text: str) -> None:
    print(f"\n{text}")
    print("-" * len(text))
