"""Take the figures of a bench into the documentation: ``python -m tests.bench.figures FILE``.

``python -m tests.bench --json FILE`` measures, and writes the file. This command copies it to
``tests/bench/figures.json``, without the single values of each figure, and writes the page
``docs/project/bench.md``. Of several files, the figures of a section are those of the last one that
measured it; a section names its commit when it is not that of the first file. So a section that was
measured again joins the figures that are there. Without FILE it does so with these.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from statistics import median
from typing import Any

import orjson

from tests.bench.measuring import shown
from tests.support.repository import ROOT

FIGURES = Path(__file__).with_name("figures.json")
PAGE = ROOT / "docs" / "project" / "bench.md"

TITLES = {
    "consolidate": "From pending episodes to facts",
    "fire": "A firing of 100 new episodes",
    "put": "Puts and imports",
    "read": "Reads, in shares of what they may take",
    "audit": "The audit, and facts of another time",
    "forget": "Erasing a user",
    "serve": "The running daemon",
    "http": "Clients of the HTTP interface",
    "postgres": "PostgreSQL beside SQLite",
    "hosts": "Several hosts",
    "moving": "Moving a user to another shard",
    "chats": "Plain chats",
    "search": "Search among facts",
    "first-search": "The first search of a process",
    "stages": "Stages of a rule",
    "start": "The start of a daemon",
    "commands": "Short commands",
    "stargraph": "Stargraph beside slumberd",
    "year": "A simulated year",
}
"""The heading of each section."""

_HEAD = """\
# All figures of one bench

[Benchmarks](benchmarks.md) explains these figures, and what bounds the missed aims. Do not edit
this page: `python -m tests.bench.figures FILE` writes it from what
`python -m tests.bench --json FILE` measured. Runs, one after the other: {runs}.

Commit `{commit}`, where a section does not name another one. Python {python}, SQLite {sqlite},
{processors} processors. The load was {before:.1f} before, and {after:.1f} at the end.

A figure is the median. In brackets are the lowest and the highest, when a thing was measured more
than once. "Processor" is the processor time beside a wall time. {missed} of {bounded} aims are
missed. Sections that were not measured: {left_out}.
"""


def main() -> None:
    """Write the figures that the command line names."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.figures", description=__doc__)
    parser.add_argument("files", type=Path, nargs="*", default=[FIGURES], metavar="FILE")
    document = joined([orjson.loads(path.read_bytes()) for path in parser.parse_args().files])
    for line in document["lines"]:
        if values := line.pop("values", None):
            line |= {"lowest": min(values), "highest": max(values), "times": len(values)}
            line["processor_seconds"] = median(line["processor_seconds"] or [0])
    FIGURES.write_bytes(_in_lines(document))
    PAGE.write_text(page(document), "utf-8")


def joined(documents: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the figures of all runs, in the order of the sections.

    The load is that before the first run, and after the last one of the same commit.
    """
    machine = dict(documents[0]["machine"])
    runs, load = 0, machine["load_after"]
    by_section: dict[str, list[dict[str, Any]]] = {}
    for document in documents:
        commit = document["machine"]["commit"]
        if commit == machine["commit"]:
            runs += document["machine"].get("runs", 1)
            load = document["machine"]["load_after"]
        found: dict[str, list[dict[str, Any]]] = {}
        for line in document["lines"]:
            found.setdefault(line["section"], []).append({"commit": commit, **line})
        by_section |= found
    lines = [line for section in TITLES for line in by_section.get(section, ())]
    for line in lines:
        if line["commit"] == machine["commit"]:
            del line["commit"]
    return {"machine": {**machine, "load_after": load, "runs": runs}, "lines": lines}


def _in_lines(document: dict[str, Any]) -> bytes:
    """Return a document as JSON with a line for each figure."""
    lines = b",\n".join(map(orjson.dumps, document["lines"]))
    return b'{"machine":%b,\n"lines":[\n%b\n]}\n' % (orjson.dumps(document["machine"]), lines)


def page(document: dict[str, Any]) -> str:
    """Return the page with all figures of a run."""
    machine, lines = document["machine"], document["lines"]
    bounded = [line for line in lines if line["bound"]]
    measured = {line["section"] for line in lines}
    left_out = [f"`{section}`" for section in TITLES if section not in measured]
    head = _HEAD.format(
        **{name: machine[name] for name in ("commit", "python", "sqlite", "processors")},
        runs=machine.get("runs", 1),
        before=machine["load"][0],
        after=machine["load_after"][0],
        missed=sum(not line["kept"] for line in bounded),
        bounded=len(bounded),
        left_out=", ".join(left_out) or "none",
    )
    return "\n".join([head, *_missed(bounded), *_tables(lines)])


def _missed(lines: list[dict[str, Any]]) -> Iterator[str]:
    yield "## Missed aims\n"
    yield "| section | what | aim | measured |"
    yield "|---|---|---|---|"
    for line in lines:
        if not line["kept"]:
            aim, measured = _aim(line), _measured(line)
            yield f"| {TITLES[line['section']]} | {_name(line)} | {aim} | {measured} |"
    yield ""


def _tables(lines: list[dict[str, Any]]) -> Iterator[str]:
    for section, found in groupby(lines, key=lambda line: str(line["section"])):
        some = [*found]
        commit = some[0].get("commit")
        yield f"## {TITLES[section]}\n"
        yield f"`python -m tests.bench {section}`" + (f", commit `{commit}`\n" if commit else "\n")
        yield "| what | aim | measured | processor | |"
        yield "|---|---|---|---|---|"
        yield from map(_row, some)
        yield ""


def _row(line: dict[str, Any]) -> str:
    seconds = line["processor_seconds"]
    processor = f"{shown(seconds)} s" if seconds else ""
    cells = _name(line), _aim(line), _measured(line), processor, "" if line["kept"] else "missed"
    return f"| {' | '.join(cells)} |"


def _name(line: dict[str, Any]) -> str:
    name: str = line["name"]
    return name[0].upper() + name[1:]


def _aim(line: dict[str, Any]) -> str:
    return f"{line['bound']} {line['unit']}".strip() if line["bound"] else ""


def _measured(line: dict[str, Any]) -> str:
    spread = f" ({shown(line['lowest'])} to {shown(line['highest'])})" if line["times"] > 1 else ""
    return f"{shown(line['median'])} {line['unit']}".strip() + spread


if __name__ == "__main__":
    main()
