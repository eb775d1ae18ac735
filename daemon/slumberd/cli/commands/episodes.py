"""`slumberd import`: put many episodes from JSON lines.

`slumberd recent`: the latest episodes of a user.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Annotated, Any, NamedTuple

import typer

from slumberd.cli.client import reading_memory
from slumberd.cli.context import logs, make_state_dir, settings_of
from slumberd.cli.empty_results import no_episodes
from slumberd.cli.exit_codes import say
from slumberd.cli.jsonl import Line, Source, opened, read_lines
from slumberd.cli.options import MOST, Config, Json, StateDir
from slumberd.cli.output import Bar, bar, print_json, print_json_lines, print_table
from slumberd.cli.wording import plural
from slumberd.clock import SystemClock
from slumberd.config.settings import Settings
from slumberd.errors import InputError, MemoryScopeError
from slumberd.model.episode import Episode
from slumberd.observability.line_format import timestamp
from slumberd.service.composition import memory_of
from slumberd.storage.episodes.store import SQLiteMemoryStore
from slumberd.storage.episodes.writes import PutCounts

BATCH = 1_000
"""Lines that share a transaction."""

MOST_TOLD = 1_000
"""Bad lines that are printed; the others are counted."""


class Rejection(NamedTuple):
    """A line that was not put."""

    line: int
    reason: str


class Warned(NamedTuple):
    """A line that was put although it probably holds a mistake."""

    line: int
    warning: str


@dataclass
class Tally:
    """What became of the lines.

    Attributes:
        counts: Of those that were put.
        rejected: How many were not.
        kept: Those that were not, where they are kept.
        warned: How many warnings there are.
        warnings: The warnings, where they are kept.
        keep: Whether to keep them all, or to print the first of them at once.
    """

    keep: bool
    counts: PutCounts = field(default_factory=PutCounts)
    rejected: int = 0
    kept: list[Rejection] = field(default_factory=list)
    warned: int = 0
    warnings: list[Warned] = field(default_factory=list)

    def add(self, counts: PutCounts) -> None:
        """Count lines that were put."""
        self.counts = _sum(self.counts, counts)

    def reject(self, rejections: Sequence[Rejection]) -> None:
        """Tell, or keep, lines that were not put."""
        if self.keep:
            self.kept.extend(rejections)
        else:
            for one in rejections[: max(0, MOST_TOLD - self.rejected)]:
                say(f"line {one.line}: {one.reason}")
        self.rejected += len(rejections)

    def warn(self, warnings: Sequence[Warned]) -> None:
        """Print, or keep, warnings on lines that were put."""
        if self.keep:
            self.warnings.extend(warnings)
        else:
            for one in warnings[: max(0, MOST_TOLD - self.warned)]:
                say(f"line {one.line}: warning: {one.warning}")
        self.warned += len(warnings)

    @property
    def put(self) -> int:
        """How many lines were put, changed or not."""
        return sum(self.counts)

    def __str__(self) -> str:
        new, changed, unchanged = self.counts
        return (
            f"imported {self.put} (new {new}, changed {changed}, unchanged {unchanged}), "
            f"rejected {self.rejected}"
        )


def import_(
    file: Annotated[str, typer.Argument(metavar="FILE", help="JSON lines, also as gzip; or -.")],
    json: Json = False,
    config: Config = None,
    state_dir: StateDir = None,
) -> None:
    """Put many episodes from a file of JSON lines, or from standard input.

    Each line is an episode: id, content, timestamp (ISO 8601 with an offset), source_node, agent,
    user, session, and metadata, a JSON object. Empty lines are skipped. A line that is no episode
    is reported with its number, all others are put, and the exit code is 65; so is a line with a
    key that is not listed here. A key of metadata that is probably misspelled is a warning, and the
    line is put. The same episode again changes nothing. A daemon may run meanwhile.
    """
    settings = settings_of(config, state_dir)
    with opened(file) as source, logs(settings, SystemClock()):
        make_state_dir(settings)
        tally = asyncio.run(_imported(settings, source, Tally(keep=json)))
    _print(tally)
    if tally.rejected:
        raise typer.Exit(InputError.exit_code)


def _print(tally: Tally) -> None:
    if tally.keep:
        rejected = [one._asdict() for one in tally.kept]
        warnings = [one._asdict() for one in tally.warnings]
        print_json({**tally.counts._asdict(), "rejected": rejected, "warnings": warnings})
        return
    if tally.rejected > MOST_TOLD:
        say(f"and {tally.rejected - MOST_TOLD} more bad lines; --json lists all")
    if tally.warned > MOST_TOLD:
        say(f"and {tally.warned - MOST_TOLD} more warnings; --json lists all")
    print(tally)


async def _imported(settings: Settings, source: Source, tally: Tally) -> Tally:
    # The tally reports misspelled keys, by line.
    memory = memory_of(settings, SystemClock(), misspelled=lambda _: None)
    try:
        with bar(source.size) as shown:
            await _put_all(memory, source, tally, shown)
    finally:
        await memory.close()
    return tally


async def _put_all(memory: SQLiteMemoryStore, source: Source, tally: Tally, shown: Bar) -> None:
    for lines in batches(read_lines(source.stream)):
        await put_lines(memory, lines, tally)
        shown.at(source.position(), plural(tally.put, "episode"))


def batches(lines: Iterable[Line]) -> Iterator[list[Line]]:
    """Yield the lines in the batches that they are put in."""
    remaining = iter(lines)
    while batch := list(islice(remaining, BATCH)):
        yield batch


async def put_lines(memory: SQLiteMemoryStore, lines: Sequence[Line], tally: Tally) -> None:
    """Put what can be put of some lines, in order."""
    counts, refused = await _put([line for line in lines if line.episode], memory)
    unread = [Rejection(line.number, line.problem) for line in lines if not line.episode]
    tally.add(counts)
    tally.reject(sorted([*unread, *refused]))
    bad = {one.line for one in refused}
    tally.warn(
        [
            Warned(line.number, doubt)
            for line in lines
            if line.number not in bad
            for doubt in line.doubts
        ]
    )


async def _put(
    lines: Sequence[Line], memory: SQLiteMemoryStore
) -> tuple[PutCounts, list[Rejection]]:
    """Put lines in one transaction; when that is refused, the halves, down to the bad ones."""
    try:
        return await memory.put_many([line.episode for line in lines if line.episode]), []
    except (InputError, MemoryScopeError) as error:
        if len(lines) == 1:
            return PutCounts(), [Rejection(lines[0].number, str(error))]
    middle = len(lines) // 2
    before, refused_before = await _put(lines[:middle], memory)
    after, refused_after = await _put(lines[middle:], memory)
    return _sum(before, after), [*refused_before, *refused_after]


def _sum(one: PutCounts, other: PutCounts) -> PutCounts:
    return PutCounts(*map(sum, zip(one, other, strict=True)))


COLUMNS = ("id", "at", "session", "agent", "content")


def recent(
    user: Annotated[str, typer.Argument(help="Whose.")],
    session: Annotated[str | None, typer.Option(help="Only of this session.")] = None,
    agent: Annotated[str | None, typer.Option(help="Only with this agent.")] = None,
    limit: Annotated[int, typer.Option(min=1, max=MOST, help="At most so many.")] = 20,
    json: Json = False,
    config: Config = None,
    state_dir: StateDir = None,
) -> None:
    """Show the latest episodes of a user, newest first.

    With --json, each on a line of its own, as `slumberd import` reads them.
    """
    settings = settings_of(config, state_dir)
    episodes = asyncio.run(_recent(settings, user, session, agent, limit=limit))
    if json:
        print_json_lines(document(episode) for episode in episodes)
    else:
        narrowed = session is not None or agent is not None
        empty = "" if episodes else no_episodes(settings, user, narrowed=narrowed)
        print_table(COLUMNS, (_row(episode) for episode in episodes), empty=empty)


async def _recent(
    settings: Settings, user: str, session: str | None, agent: str | None, *, limit: int
) -> list[Episode]:
    async with reading_memory(settings) as memory:
        return await memory.recent(user, session, agent, limit=limit)


def _row(episode: Episode) -> tuple[object, ...]:
    return episode.id, episode.timestamp, episode.session, episode.agent, episode.content


def document(episode: Episode) -> dict[str, Any]:
    """Return an episode as JSON takes it."""
    return {
        "id": episode.id,
        "content": episode.content,
        "timestamp": timestamp(episode.timestamp),
        "source_node": episode.source_node,
        "agent": episode.agent,
        "user": episode.user,
        "session": episode.session,
        "metadata": episode.metadata,
    }
