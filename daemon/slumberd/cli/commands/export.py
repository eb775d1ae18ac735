"""`slumberd export`: write all episodes, or all facts with their lineage, as lines of JSON."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from enum import StrEnum
from typing import Annotated, Any

import orjson
import typer

from slumberd.cli.commands.episodes import document
from slumberd.cli.context import settings_of
from slumberd.cli.exit_codes import say
from slumberd.cli.options import Config, StateDir
from slumberd.cli.output_file import STANDARD_OUTPUT, Write, open_output
from slumberd.consolidation.explanation import Explanation, Source
from slumberd.daemon.stores import open_facts, open_memory
from slumberd.integrations.interchange.export import ExportScope, read_episodes, read_facts
from slumberd.logs.lines import printable, timestamp
from slumberd.model.episode import EpisodeVersion
from slumberd.model.errors import InputError
from slumberd.model.fact import Fact
from slumberd.model.firing import Record
from slumberd.model.scope import channel_of
from slumberd.operations.responses import fact_document
from slumberd.rules.settings import Settings
from slumberd.storage.episodes.rows import episode_of

MOST_PRINTED = 1_000
"""Unreadable episodes that are printed; the others are only counted."""


class Kind(StrEnum):
    """What is exported."""

    EPISODES = "episodes"
    FACTS = "facts"


def export(
    file: Annotated[
        str,
        typer.Argument(help="The new file: gzip if it ends in .gz; - is standard output."),
    ] = STANDARD_OUTPUT,
    kind: Annotated[Kind, typer.Option(help="What to export.")] = Kind.EPISODES,
    user: Annotated[str | None, typer.Option(help="Only of this user.")] = None,
    agent: Annotated[str | None, typer.Option(help="Only of this agent.")] = None,
    config: Config = None,
    state_dir: StateDir = None,
) -> None:
    """Export all episodes, or all current facts with their lineage, as lines of JSON.

    `slumberd import` reads the episodes. The same rules then make the same facts of them, without
    the edits of people, such as pins and undos. A line of a fact adds its channel, the episodes
    that it comes from, and the firings that promoted it.

    Of a database with several shards, it exports the shard of --user, or of `slumberd --shard`.

    The command writes a temporary file beside FILE, for owner and group only, and renames it when
    it is complete. It holds a page of 1,000 lines in memory. A daemon may run meanwhile. If an
    episode cannot be read, the command reports it, exports the others, and the exit code is 65.
    """
    settings = settings_of(config, state_dir, user=user)
    wanted = ExportScope(user, agent)
    unreadable = 0
    with open_output(file) as write:
        if kind is Kind.FACTS:
            asyncio.run(_export_facts(settings, wanted, write))
        else:
            unreadable = asyncio.run(_export_episodes(settings, wanted, write))
    if unreadable > MOST_PRINTED:
        say(f"and {unreadable - MOST_PRINTED} more episodes that cannot be read")
    if unreadable:
        raise typer.Exit(InputError.exit_code)


async def _export_episodes(settings: Settings, wanted: ExportScope, write: Write) -> int:
    """Write the episodes; report those that cannot be read, and return how many there are."""
    unreadable = 0
    async with open_memory(settings) as memory:
        async for page in read_episodes(memory, wanted):
            faulty = [version for version in page if version.fault]
            _report(faulty[: max(0, MOST_PRINTED - unreadable)])
            unreadable += len(faulty)
            write([_line(document(episode_of(one))) for one in page if not one.fault])
    return unreadable


def _report(faulty: Sequence[EpisodeVersion]) -> None:
    for version in faulty:
        say(f"episode {printable(version.id)!r} cannot be read: {printable(version.fault)}")


async def _export_facts(settings: Settings, wanted: ExportScope, write: Write) -> None:
    async with open_facts(settings) as facts:
        pages: AsyncIterator[list[tuple[Fact, Explanation]]] = read_facts(facts, wanted)
        async for page in pages:
            write([_line(_fact_document(*pair)) for pair in page])


def _fact_document(fact: Fact, explanation: Explanation) -> dict[str, Any]:
    return {
        **fact_document(fact),
        "channel": channel_of(fact.id),
        "sources": [*map(_source_document, explanation.sources)],
        "promotions": [
            _promotion_document(asserting.row.record)
            for asserting in explanation.assertions
            if asserting.counts
        ],
    }


def _source_document(source: Source) -> dict[str, Any]:
    return {**source._asdict(), "at": source.at and timestamp(source.at)}


def _promotion_document(record: Record) -> dict[str, Any]:
    return {
        "firing": record.firing_id,
        "rule": record.rule_id,
        "seq": record.seq,
        "kind": record.kind,
        "at": timestamp(record.at),
    }


def _line(value: dict[str, Any]) -> bytes:
    return orjson.dumps(value, option=orjson.OPT_APPEND_NEWLINE)
