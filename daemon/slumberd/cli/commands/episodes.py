"""Commands on episodes: `slumberd import` puts them, `slumberd recent` shows them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Annotated, Any, NamedTuple

import typer

from slumberd.cli.context import logs, make_state_dir, settings_of
from slumberd.cli.empty_results import no_episodes
from slumberd.cli.exit_codes import say
from slumberd.cli.jsonl import Line, Source, open_input, read_lines
from slumberd.cli.options import MOST, Config, Json, StateDir
from slumberd.cli.output import Bar, bar, plural, print_json, print_json_lines, print_table
from slumberd.clock import SystemClock
from slumberd.config.settings import Settings
from slumberd.errors import InputError, MemoryScopeError
from slumberd.model.episode import Episode
from slumberd.observability.line_format import timestamp
from slumberd.service.composition import memory_of, open_memory
from slumberd.storage.episodes.writes import PutCounts

COLUMNS = ("id", "at", "session", "agent", "content")

BATCH = 1_000
"""Lines that share a transaction."""

MOST_PRINTED = 1_000
"""Bad lines that are printed; the others are only counted."""


PutMany = Callable[[Sequence[Episode]], Awaitable[PutCounts]]
"""Puts episodes in one transaction."""


class Rejection(NamedTuple):
    """A line that was not put."""

    line: int
    reason: str


class LineWarning(NamedTuple):
    """A line that was put although it probably holds a mistake."""

    line: int
    warning: str


@dataclass
class ImportTally:
    """How many lines were put and rejected, and why.

    Attributes:
        keep: Whether to keep all rejections and warnings, or to print the first ones at once.
        counts: The counts of the lines that were put.
        rejected: How many lines were rejected.
        rejections: The rejections, if they are kept.
        warned: How many warnings there are.
        warnings: The warnings, if they are kept.
    """

    keep: bool
    counts: PutCounts = field(default_factory=PutCounts)
    rejected: int = 0
    rejections: list[Rejection] = field(default_factory=list)
    warned: int = 0
    warnings: list[LineWarning] = field(default_factory=list)

    def add(self, counts: PutCounts) -> None:
        """Count lines that were put."""
        self.counts = _sum(self.counts, counts)

    def reject(self, rejections: Sequence[Rejection]) -> None:
        """Print or keep the rejections of lines."""
        if self.keep:
            self.rejections.extend(rejections)
        else:
            for rejection in rejections[: max(0, MOST_PRINTED - self.rejected)]:
                say(f"line {rejection.line}: {rejection.reason}")
        self.rejected += len(rejections)

    def warn(self, warnings: Sequence[LineWarning]) -> None:
        """Print or keep the warnings on lines that were put."""
        if self.keep:
            self.warnings.extend(warnings)
        else:
            for warning in warnings[: max(0, MOST_PRINTED - self.warned)]:
                say(f"line {warning.line}: warning: {warning.warning}")
        self.warned += len(warnings)

    @property
    def put(self) -> int:
        """How many lines were put, including those that changed nothing."""
        return sum(self.counts)

    def __str__(self) -> str:
        new, changed, unchanged = self.counts
        return (
            f"imported {self.put} (new {new}, changed {changed}, unchanged {unchanged}), "
            f"rejected {self.rejected}"
        )


def import_(
    file: Annotated[
        str,
        typer.Argument(
            metavar="FILE", help="A file of JSON lines, plain or gzip, or - for standard input."
        ),
    ],
    json: Json = False,
    config: Config = None,
    state_dir: StateDir = None,
) -> None:
    """Put many episodes from a file of JSON lines, or from standard input.

    Each line is an episode: id, content, timestamp (ISO 8601 with an offset), source_node, agent,
    user, session, and metadata, a JSON object. Empty lines are skipped.

    The command reports the number of each line that is not an episode, or that has another key. It
    puts all other lines, and the exit code is 65. If a key of metadata is probably misspelled, the
    command warns, and puts the line. An episode that is there already changes nothing. A daemon may
    run meanwhile.
    """
    settings = settings_of(config, state_dir)
    with open_input(file) as source, logs(settings, SystemClock()):
        make_state_dir(settings)
        tally = asyncio.run(_import(settings, source, ImportTally(keep=json)))
    _print_tally(tally)
    if tally.rejected:
        raise typer.Exit(InputError.exit_code)


def _print_tally(tally: ImportTally) -> None:
    if tally.keep:
        rejected = [rejection._asdict() for rejection in tally.rejections]
        warnings = [warning._asdict() for warning in tally.warnings]
        print_json({**tally.counts._asdict(), "rejected": rejected, "warnings": warnings})
        return
    if tally.rejected > MOST_PRINTED:
        say(f"and {tally.rejected - MOST_PRINTED} more bad lines; --json lists all")
    if tally.warned > MOST_PRINTED:
        say(f"and {tally.warned - MOST_PRINTED} more warnings; --json lists all")
    print(tally)


async def _import(settings: Settings, source: Source, tally: ImportTally) -> ImportTally:
    # The tally reports misspelled keys, by line.
    memory = memory_of(settings, SystemClock(), misspelled=lambda _: None)
    try:
        with bar(source.size) as shown:
            await _put_all(memory.put_many, source, tally, shown)
    finally:
        await memory.close()
    return tally


async def _put_all(put_many: PutMany, source: Source, tally: ImportTally, shown: Bar) -> None:
    for lines in batches(read_lines(source.stream)):
        await put_lines(put_many, lines, tally)
        shown.at(source.position(), plural(tally.put, "episode"))


def batches(lines: Iterable[Line]) -> Iterator[list[Line]]:
    """Yield the lines in the batches that they are put in."""
    remaining = iter(lines)
    while batch := list(islice(remaining, BATCH)):
        yield batch


async def put_lines(put_many: PutMany, lines: Sequence[Line], tally: ImportTally) -> None:
    """Put lines in order, and record in the tally the result of each.

    Args:
        put_many: Puts episodes in one transaction.
        lines: The lines.
        tally: The counts of the lines so far.
    """
    counts, refused = await _put([line for line in lines if line.episode], put_many)
    unread = [Rejection(line.number, line.problem) for line in lines if not line.episode]
    tally.add(counts)
    tally.reject(sorted([*unread, *refused]))
    bad = {rejection.line for rejection in refused}
    tally.warn(
        [
            LineWarning(line.number, doubt)
            for line in lines
            if line.number not in bad
            for doubt in line.doubts
        ]
    )


async def _put(lines: Sequence[Line], put_many: PutMany) -> tuple[PutCounts, list[Rejection]]:
    """Put lines in one transaction; if it is refused, put each half, down to single lines."""
    try:
        return await put_many([line.episode for line in lines if line.episode]), []
    except (InputError, MemoryScopeError) as error:
        if len(lines) == 1:
            return PutCounts(), [Rejection(lines[0].number, str(error))]
    middle = len(lines) // 2
    before, refused_before = await _put(lines[:middle], put_many)
    after, refused_after = await _put(lines[middle:], put_many)
    return _sum(before, after), [*refused_before, *refused_after]


def _sum(left: PutCounts, right: PutCounts) -> PutCounts:
    return PutCounts(*map(sum, zip(left, right, strict=True)))


def recent(
    user: Annotated[str, typer.Argument(help="The id of the user.")],
    session: Annotated[str | None, typer.Option(help="Only episodes of this session.")] = None,
    agent: Annotated[str | None, typer.Option(help="Only episodes of this agent.")] = None,
    limit: Annotated[
        int, typer.Option(min=1, max=MOST, metavar="N", help="Show at most N episodes.")
    ] = 20,
    json: Json = False,
    config: Config = None,
    state_dir: StateDir = None,
) -> None:
    """Show the latest episodes of a user, newest first.

    With --json, each episode is printed on a line, in the form that `slumberd import` reads.
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
    async with open_memory(settings) as memory:
        return await memory.recent(user, session, agent, limit=limit)


def _row(episode: Episode) -> tuple[object, ...]:
    return episode.id, episode.timestamp, episode.session, episode.agent, episode.content


def document(episode: Episode) -> dict[str, Any]:
    """Return the JSON form of an episode."""
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
