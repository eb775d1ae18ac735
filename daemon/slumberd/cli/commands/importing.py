"""`slumberd import`: put many episodes, from a file or folder of any known format."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import structlog
import typer

from slumberd.cli.commands.import_audit import audit_records, keep_instants, sentences
from slumberd.cli.context import make_state_dir, settings_of
from slumberd.cli.exit_codes import say
from slumberd.cli.jsonl import open_input
from slumberd.cli.options import Config, Json, StateDir
from slumberd.cli.output import plural, print_json
from slumberd.cli.setup import logs
from slumberd.cli.terminal import Bar, bar
from slumberd.clock import SystemClock
from slumberd.daemon.composition import user_stores_of
from slumberd.daemon.rules import rules_of
from slumberd.integrations.interchange import langgraph
from slumberd.integrations.interchange.formats import (
    EPISODES,
    FORMATS,
    FolderFormat,
    ReplacingStatements,
    join_statements,
    open_folder,
)
from slumberd.integrations.interchange.records import (
    Defaults,
    GivenScope,
    ImportedRecord,
    Remarks,
    place_of,
)
from slumberd.logs.lines import printable
from slumberd.model.capture.episodes import describe_kinds
from slumberd.model.episode import Episode
from slumberd.model.errors import InputError, MemoryScopeError, UsageError
from slumberd.model.predicates import holds_several
from slumberd.model.scope import FACTS
from slumberd.operations.writes.put_once import UserStores
from slumberd.rules.settings import Settings
from slumberd.storage.episodes.store import EngineMemoryStore
from slumberd.storage.episodes.writes import PutCounts

BATCH = 1_000
"""Records that share a transaction."""

_log = structlog.get_logger("slumberd")

MOST_PREDICATES = 10
"""The most predicates that a remark names."""

MOST_PRINTED = 1_000
"""Bad records that are printed; the others are only counted."""


PutMany = Callable[[Sequence[Episode]], Awaitable[PutCounts]]
"""Puts episodes in one transaction."""


class Rejection(NamedTuple):
    """A record that was not put."""

    line: int
    reason: str
    path: str = ""


class RecordWarning(NamedTuple):
    """A record that was put although it probably holds a mistake."""

    line: int
    warning: str
    path: str = ""


class Input(NamedTuple):
    """A file or folder that is open.

    Attributes:
        position: Returns how many bytes of a file are read.
        size: How many bytes a file has on disk; None when that is not known.
    """

    records: Iterator[ImportedRecord]
    position: Callable[[], int]
    size: int | None


@dataclass
class ImportTally:
    """How many records were put and rejected, and why.

    Attributes:
        keep: Whether to keep all rejections and warnings, or to print the first ones at once.
        counts: The counts of the episodes that were put.
        rejected: How many records were rejected.
        rejections: The rejections, if they are kept.
        warned: How many warnings there are.
        warnings: The warnings, if they are kept.
        replacing: Counts the statements that would replace each other; None where none can.
        masked: How many secrets of each kind were masked.
        incomplete: What was not read.
        remarks: What else should be known about the records.
    """

    keep: bool
    counts: PutCounts = field(default_factory=PutCounts)
    rejected: int = 0
    rejections: list[Rejection] = field(default_factory=list)
    warned: int = 0
    warnings: list[RecordWarning] = field(default_factory=list)
    replacing: ReplacingStatements | None = None
    masked: Mapping[str, int] = field(default_factory=dict)
    incomplete: list[Rejection] = field(default_factory=list)
    remarks: Remarks = field(default_factory=Remarks)

    def add(self, counts: PutCounts) -> None:
        """Count episodes that were put."""
        self.counts = _sum(self.counts, counts)

    def reject(self, rejections: Sequence[Rejection]) -> None:
        """Print or keep the rejections of records."""
        if self.keep:
            self.rejections.extend(rejections)
        else:
            for line, reason, path in rejections[: max(0, MOST_PRINTED - self.rejected)]:
                say(f"{place_of(line, path)}: {reason}")
        self.rejected += len(rejections)

    def warn(self, warnings: Sequence[RecordWarning]) -> None:
        """Print or keep the warnings on records that were put."""
        if self.keep:
            self.warnings.extend(warnings)
        else:
            for line, warning, path in warnings[: max(0, MOST_PRINTED - self.warned)]:
                say(f"{place_of(line, path)}: warning: {warning}")
        self.warned += len(warnings)

    def miss(self, missing: Sequence[Rejection]) -> None:
        """Keep what was not read, and print the first of it at once unless all is kept."""
        if not self.keep:
            for line, reason, path in missing[: max(0, MOST_PRINTED - len(self.incomplete))]:
                say(f"{path or place_of(line)}: {reason}")
        self.incomplete.extend(missing)

    @property
    def put(self) -> int:
        """How many episodes were put, including those that changed nothing."""
        return self.counts.stored

    def __str__(self) -> str:
        new, changed, unchanged, erased = self.counts
        not_put = f", erased before {erased}" if erased else ""
        return (
            f"imported {self.put} (new {new}, changed {changed}, unchanged {unchanged}), "
            f"rejected {self.rejected}{not_put}"
        )


def _format_of(text: str) -> str:
    if text not in FORMATS:
        raise typer.BadParameter(f"{text!r} is not one of {', '.join(FORMATS)}")
    return text


def import_(
    file: Annotated[
        str,
        typer.Argument(
            metavar="FILE", help="A file, plain or gzip, or - for standard input; or a folder."
        ),
    ],
    format: Annotated[  # noqa: A002 # its name on the command line
        str,
        typer.Option(parser=_format_of, metavar="NAME", help="The format of FILE; see below."),
    ] = EPISODES,
    user: Annotated[
        str | None, typer.Option(help="The user of all records, whomever they name.")
    ] = None,
    agent: Annotated[
        str | None, typer.Option(help="The agent of all records, whatever they name.")
    ] = None,
    session: Annotated[
        str | None, typer.Option(help="The session of all records, whatever they name.")
    ] = None,
    user_at: Annotated[
        int | None,
        typer.Option(
            min=1, max=100, metavar="N", help="The user is the Nth label of a LangGraph namespace."
        ),
    ] = None,
    audit: Annotated[
        bool, typer.Option("--audit", help="Put nothing; report what is wrong with the records.")
    ] = False,
    json: Json = False,
    config: Config = None,
    state_dir: StateDir = None,
) -> None:
    """Put many episodes from a file, a folder, or standard input.

    The formats are: episodes, JSON lines as `slumberd export` writes them; mem0, the output of
    get_all; graphiti, facts with valid_at and invalid_at; mcp-memory, the file of the MCP memory
    server; langgraph, the items of a store; claude-folder and codex-folder, notes in markdown.

    A line of the format episodes has: id, content, timestamp (ISO 8601 with an offset),
    source_node, agent, user, session, and metadata, a JSON object. Empty lines are skipped.

    The command reports the line of each record that it cannot read. It puts all other records, and
    the exit code is 65. So it is if a document says that it is one page of several, or if a file of
    a folder is not read. If a key of metadata is probably misspelled, the command warns, and puts
    the record. A record that is there already changes nothing. An episode that was erased by its
    id stays erased, and is counted. A daemon may run meanwhile.

    With --audit, the command opens no database. It reports duplicates, contradictions, ids and
    texts of several scopes, episodes of the future, records that it cannot read or that rules would
    quarantine, and what is not there. If it finds any, the exit code is 1.
    """
    defaults = _defaults(format, GivenScope(user, agent, session), user_at)
    settings = settings_of(config, state_dir)
    secrets = settings.capture_rules.secret_filter()
    defaults = defaults._replace(secrets=secrets)
    if audit:
        with _open(file, format, defaults) as found:
            audit_records(settings, format, found.records, json=json)
        return
    tally = ImportTally(keep=json)
    with _open(file, format, defaults) as found, logs(settings, SystemClock()):
        make_state_dir(settings)
        if getattr(FORMATS[format], "side_by_side", False):
            tally.replacing = ReplacingStatements(_several_in(settings))
            records = tally.replacing.watch(join_statements(found.records))
            found = found._replace(records=records)
        limit = getattr(FORMATS[format], "limit", None)
        found = found._replace(records=tally.remarks.watch(found.records, limit))
        asyncio.run(_import(settings, found, tally))
        tally.masked = dict(secrets.kinds)
        if secrets.kinds:
            _log.info("secrets.masked", interface="import", masked=tally.masked)
    _print_tally(tally)
    if tally.rejected or tally.incomplete:
        raise typer.Exit(InputError.exit_code)


def _several_in(settings: Settings) -> Callable[[str], bool]:
    """Return whether a predicate holds several values in the channel ``facts``."""
    if not settings.are_rules_published and not settings.rules_dir.is_dir():
        return lambda _: False
    several = rules_of(settings).multi_valued.get(FACTS, frozenset())
    return lambda predicate: holds_several(predicate, several)


def _defaults(
    format: str,  # noqa: A002 # its name on the command line
    scope: GivenScope,
    user_at: int | None,
) -> Defaults:
    found = FORMATS[format]
    if user_at is not None and format != langgraph.NAME:
        raise UsageError(f"--user-at is for the format {langgraph.NAME}, not for {format}")
    names_user = not isinstance(found, FolderFormat) and found.names_user
    if scope.user is None and not names_user:
        raise UsageError(f"records of the format {format} name no user; give one with --user")
    if scope.user is None and user_at is None and format == langgraph.NAME:
        raise UsageError("give --user, or the place of the user in the namespaces with --user-at")
    return Defaults(scope, user_at=user_at, latest=SystemClock().now())


@contextmanager
def _open(
    file: str,
    format: str,  # noqa: A002 # its name on the command line
    defaults: Defaults,
) -> Iterator[Input]:
    found = FORMATS[format]
    if isinstance(found, FolderFormat):
        yield Input(found.read(open_folder(Path(file)), defaults), lambda: 0, None)
        return
    with open_input(file) as source:
        records = found.read(source.stream, defaults._replace(modified=source.modified))
        yield Input(records, source.position, source.size)


def _print_tally(tally: ImportTally) -> None:
    if tally.keep:
        rejected, warnings = _documents(tally.rejections), _documents(tally.warnings)
        replacing = tally.replacing.count if tally.replacing else 0
        counts = tally.counts._asdict()
        print_json({
            **counts,
            "rejected": rejected,
            "warnings": warnings,
            "replacing": replacing,
            "incomplete": _documents(tally.incomplete),
            "remarks": tally.remarks.by_name(),
            "masked": tally.masked,
        })  # fmt: skip
        return
    if tally.rejected > MOST_PRINTED:
        say(f"and {tally.rejected - MOST_PRINTED} more bad lines; --json lists all")
    if tally.warned > MOST_PRINTED:
        say(f"and {tally.warned - MOST_PRINTED} more warnings; --json lists all")
    if len(tally.incomplete) > MOST_PRINTED:
        say(f"and {len(tally.incomplete) - MOST_PRINTED} more that is not read; --json lists all")
    for sentence in [*sentences(tally.remarks), *_describe_records(tally)]:
        say(sentence)
    if tally.rejected and not tally.put:
        say("no record could be read; if the file is in another format, name it with --format")
    print(tally)


def _describe_records(tally: ImportTally) -> Iterator[str]:
    if tally.replacing and tally.replacing.count:
        yield _describe_replacing(tally.replacing)
    if tally.masked:
        count = plural(sum(tally.masked.values()), "secret")
        yield f"masked {count}: {describe_kinds(tally.masked)}"


def _describe_replacing(found: ReplacingStatements) -> str:
    predicates = ", ".join(map(printable, sorted(found.predicates)[:MOST_PREDICATES]))
    more = ", ..." if len(found.predicates) > MOST_PREDICATES else ""
    return (
        f"{plural(found.count, 'statement')} would replace each other in the channel facts, since"
        f" it holds one value of {predicates}{more}; list these under multi_valued, or set"
        " 'values: many', before the rules fire"
    )


def _documents(found: Sequence[Rejection | RecordWarning]) -> list[dict[str, Any]]:
    return [
        {key: value for key, value in one._asdict().items() if key != "path" or value}
        for one in found
    ]


async def _import(settings: Settings, found: Input, tally: ImportTally) -> ImportTally:
    # The tally reports misspelled keys, by line.
    stores = user_stores_of(settings, SystemClock(), misspelled=lambda _: None)
    try:
        with bar(found.size) as shown:
            await _put_all(stores, found, tally, shown)
    finally:
        await stores.close()
    return tally


async def _put_all(stores: UserStores, found: Input, tally: ImportTally, shown: Bar) -> None:
    for records in batches(found.records):
        for shard, part in (await _divide(stores, records)).items():
            await put_records(partial(_put_many, stores.memory(shard)), part, tally)
        shown.at(found.position(), plural(tally.put, "episode"))


async def _divide(
    stores: UserStores, records: Sequence[ImportedRecord]
) -> dict[int, list[ImportedRecord]]:
    """Return the records of each shard; one without episodes needs none."""
    users = {episode.user for record in records for episode in record.episodes}
    shards = await stores.shards_of(users)
    parts: dict[int, list[ImportedRecord]] = {}
    for record in records:
        divided: dict[int, list[Episode]] = {}
        for episode in record.episodes:
            divided.setdefault(shards[episode.user], []).append(episode)
        for shard, episodes in divided.items():
            parts.setdefault(shard, []).append(record._replace(episodes=tuple(episodes)))
        if not divided:
            parts.setdefault(next(iter(parts), 0), []).append(record)
    return parts


async def _put_many(memory: EngineMemoryStore, episodes: Sequence[Episode]) -> PutCounts:
    return await memory.put_many(await keep_instants(memory, episodes))


def batches(records: Iterable[ImportedRecord]) -> Iterator[list[ImportedRecord]]:
    """Yield the records in the batches that they are put in."""
    remaining = iter(records)
    while batch := list(islice(remaining, BATCH)):
        yield batch


async def put_records(
    put_many: PutMany, records: Sequence[ImportedRecord], tally: ImportTally
) -> None:
    """Put records in order, and record in the tally the result of each.

    Args:
        put_many: Puts episodes in one transaction.
        tally: The counts of the records so far.
    """
    counts, refused = await _put([one for one in records if one.episodes], put_many)
    unread = [Rejection(one.line, one.problem, one.path) for one in records if one.problem]
    order = {(one.path, one.line): number for number, one in enumerate(records)}
    bad = {(path, line) for line, _, path in refused}
    tally.add(counts)
    tally.miss([Rejection(one.line, one.incomplete, one.path) for one in records if one.incomplete])
    tally.reject(sorted([*unread, *refused], key=lambda one: order[one.path, one.line]))
    tally.warn(
        [
            RecordWarning(one.line, doubt, one.path)
            for one in records
            if (one.path, one.line) not in bad
            for doubt in one.doubts
        ]
    )


async def _put(
    records: Sequence[ImportedRecord], put_many: PutMany
) -> tuple[PutCounts, list[Rejection]]:
    """Put records in one transaction; if it is refused, put each half, down to single records."""
    try:
        return await put_many([episode for one in records for episode in one.episodes]), []
    except (InputError, MemoryScopeError) as error:
        if len(records) == 1:
            return PutCounts(), [Rejection(records[0].line, str(error), records[0].path)]
    middle = len(records) // 2
    before, refused_before = await _put(records[:middle], put_many)
    after, refused_after = await _put(records[middle:], put_many)
    return _sum(before, after), [*refused_before, *refused_after]


def _sum(left: PutCounts, right: PutCounts) -> PutCounts:
    return PutCounts(*map(sum, zip(left, right, strict=True)))
