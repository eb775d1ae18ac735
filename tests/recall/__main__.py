"""Measure search and context on public data: ``python -m tests.recall [SECTION ...]``.

Each section measures the memory that ``slumberd init`` makes, plain BM25, and the search of
slumberd without a language, by words and with vectors, in the same run. The command prints a
table for each section, and exits with 1 when a figure misses its bar.

The data are not part of the project. ``--data`` or ``SLUMBERD_TEST_DATA`` is the directory with
LoCoMo, GateMem and precisionMemBench. ``--beam`` or ``SLUMBERD_BEAM_DATA`` is ``chats/100K`` of
BEAM's repository, ``--beam-500k`` or ``SLUMBERD_BEAM_500K_DATA`` its ``chats/500K``.
``--realtalk`` or ``SLUMBERD_REALTALK_DATA`` is the directory with REALTALK's chats. A section
without its data is skipped by name.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import orjson

from tests.recall import evidence, latency, precision, prompts, statements
from tests.recall.access import load_mappings
from tests.recall.beliefs import read_benchmark
from tests.recall.conversations import Conversations, read_beam, read_locomo, read_realtalk
from tests.recall.engine import Opener
from tests.recall.engines import OPENERS
from tests.recall.figures import ENGINES, STARTED, Figure, document, missed, table, worse
from tests.recall.stories import read_stories
from tests.support.corpora import FOLDER


class Section(NamedTuple):
    """A part of the run.

    Attributes:
        needs: The file or directory without which it is skipped; None for a part without data.
        measure: Measures all engines.
        without: The engines that it cannot measure.
    """

    needs: Path | None
    measure: Callable[[Sequence[Opener]], Awaitable[list[Figure]]]
    without: tuple[str, ...] = ()


class Folders(NamedTuple):
    """Where the data are."""

    data: Path = Path()
    beam: Path = Path()
    beam_500k: Path = Path()
    realtalk: Path = Path()


def sections(folders: Folders, most: int | None = None) -> dict[str, Section]:
    """Return all parts of a run.

    Args:
        folders: Where the data are.
        most: So many conversations of each corpus are measured; None for all.
    """
    data, beam, beam_500k, realtalk = folders

    def corpus(needs: Path, read: Callable[[], Conversations]) -> Section:
        return Section(needs, lambda openers: evidence.measure(read().first(most), openers))

    return {
        "locomo": corpus(data / "locomo.questions.jsonl.gz", lambda: read_locomo(data)),
        "beam": corpus(beam, lambda: read_beam(beam)),
        "beam-500k": corpus(beam_500k, lambda: read_beam(beam_500k, "beam-500k")),
        "realtalk": corpus(realtalk, lambda: read_realtalk(realtalk)),
        "statements": Section(
            statements.HELD_OUT, lambda openers: statements.measure(openers, data=data)
        ),
        "gatemem": Section(
            data / "gatemem",
            lambda openers: prompts.measure(
                read_stories(data / "gatemem"), load_mappings(), openers
            ),
        ),
        "precision": Section(
            data / "precision",
            lambda openers: precision.measure(read_benchmark(data / "precision"), openers),
            without=(STARTED,),
        ),
        "latency": Section(None, latency.measure, without=(STARTED,)),
    }


def main(words: list[str]) -> int:
    """Measure as the command line says; return the exit code."""
    options = _parse(words)
    folders = Folders(options.data, options.beam, options.beam_500k, options.realtalk)
    parts = sections(folders, options.most)
    figures: list[Figure] = []
    for name in options.sections or parts:
        part = parts[name]
        if part.needs is not None and not part.needs.exists():
            print(f"skipped: {name}; its data are not in {part.needs}")
            continue
        openers = [OPENERS[engine] for engine in options.engines if engine not in part.without]
        some = asyncio.run(_measured(part, openers))
        print(*table(some), sep="\n", flush=True)
        figures += some
        if options.json:  # after each section, so that a later failure loses nothing
            options.json.write_bytes(orjson.dumps(document(figures), option=orjson.OPT_INDENT_2))
    if options.most is not None:  # the bars are those of whole corpora
        return 0
    failed = [*map(str, missed(figures)), *map(str, worse(figures))]
    for bar in failed:
        print(f"missed: {bar}")
    return int(bool(failed))


async def _measured(part: Section, openers: Sequence[Opener]) -> list[Figure]:
    return await part.measure(openers)


def _parse(words: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.recall", description=__doc__)
    names = list(sections(Folders()))
    parser.add_argument("sections", nargs="*", metavar="SECTION", help=", ".join(names))
    parser.add_argument("--data", type=Path, metavar="DIR", default=FOLDER)
    for option, variable, usual in (
        ("--beam", "SLUMBERD_BEAM_DATA", FOLDER / "beam" / "chats" / "100K"),
        ("--beam-500k", "SLUMBERD_BEAM_500K_DATA", FOLDER / "beam" / "chats" / "500K"),
        ("--realtalk", "SLUMBERD_REALTALK_DATA", FOLDER / "realtalk"),
    ):
        place = Path(os.environ.get(variable, usual))
        parser.add_argument(option, type=Path, metavar="DIR", default=place)
    parser.add_argument(
        "--most",
        type=int,
        metavar="N",
        help="measure so many conversations of each corpus, and judge nothing",
    )
    parser.add_argument("--engines", nargs="+", choices=ENGINES, default=list(OPENERS))
    parser.add_argument("--json", type=Path, metavar="FILE", help="where to write all figures")
    options = parser.parse_args(words)
    for name in options.sections:
        if name not in names:
            parser.error(f"there is no section {name!r}; they are {', '.join(names)}")
    return options


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
