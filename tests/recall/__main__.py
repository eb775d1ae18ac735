"""Measure search and context on public data: ``python -m tests.recall [SECTION ...]``.

Each section measures plain BM25 beside the search of slumberd, without and with vectors, in the
same run. The command prints one table, and exits with 1 when a figure misses its bar.

The data are not part of the project. ``--data`` or ``SLUMBERD_TEST_DATA`` is the directory with
LoCoMo, GateMem and precisionMemBench. ``--beam`` or ``SLUMBERD_BEAM_DATA`` is ``chats/100K`` of
BEAM's repository. A section without its data is skipped by name.
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

from tests.recall import evidence, latency, precision, prompts
from tests.recall.access import load_mappings
from tests.recall.beliefs import read_benchmark
from tests.recall.conversations import read_beam, read_locomo
from tests.recall.engine import Opener
from tests.recall.engines import OPENERS
from tests.recall.figures import ENGINES, Figure, document, missed, table
from tests.recall.stories import read_stories
from tests.support.corpora import FOLDER


class Section(NamedTuple):
    """A part of the run.

    Attributes:
        needs: The file or directory without which it is skipped; None for a part without data.
        measure: Measures all engines.
    """

    needs: Path | None
    measure: Callable[[Sequence[Opener]], Awaitable[list[Figure]]]


def sections(data: Path, beam: Path) -> dict[str, Section]:
    """Return all parts of a run, on these directories."""
    return {
        "locomo": Section(
            data / "locomo.questions.jsonl.gz",
            lambda openers: evidence.measure(read_locomo(data), openers),
        ),
        "beam": Section(beam, lambda openers: evidence.measure(read_beam(beam), openers)),
        "gatemem": Section(
            data / "gatemem",
            lambda openers: prompts.measure(
                read_stories(data / "gatemem"), load_mappings(), openers
            ),
        ),
        "precision": Section(
            data / "precision",
            lambda openers: precision.measure(read_benchmark(data / "precision"), openers),
        ),
        "latency": Section(None, latency.measure),
    }


def main(words: list[str]) -> int:
    """Measure as the command line says; return the exit code."""
    options = _parse(words)
    parts = sections(options.data, options.beam)
    openers = [OPENERS[name] for name in options.engines]
    figures: list[Figure] = []
    for name in options.sections or parts:
        part = parts[name]
        if part.needs is not None and not part.needs.exists():
            print(f"skipped: {name}; its data are not in {part.needs}")
            continue
        figures += asyncio.run(_measured(part, openers))
    print(*table(figures), sep="\n")
    if options.json:
        options.json.write_bytes(orjson.dumps(document(figures), option=orjson.OPT_INDENT_2))
    failed = missed(figures)
    for bar in failed:
        print(f"missed: {bar}")
    return int(bool(failed))


async def _measured(part: Section, openers: Sequence[Opener]) -> list[Figure]:
    return await part.measure(openers)


def _parse(words: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.recall", description=__doc__)
    beam = os.environ.get("SLUMBERD_BEAM_DATA", FOLDER / "beam" / "chats" / "100K")
    names = list(sections(Path(), Path()))
    parser.add_argument("sections", nargs="*", metavar="SECTION", help=", ".join(names))
    parser.add_argument("--data", type=Path, metavar="DIR", default=FOLDER)
    parser.add_argument("--beam", type=Path, metavar="DIR", default=Path(beam))
    parser.add_argument("--engines", nargs="+", choices=ENGINES, default=list(OPENERS))
    parser.add_argument("--json", type=Path, metavar="FILE", help="where to write all figures")
    options = parser.parse_args(words)
    for name in options.sections:
        if name not in names:
            parser.error(f"there is no section {name!r}; they are {', '.join(names)}")
    return options


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
