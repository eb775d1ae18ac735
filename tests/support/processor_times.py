"""Measure the processor time of each test, with all processes that this one has started.

``pytest -p tests.support.processor_times --processor-times FILE`` appends a line of JSON for each
test. ``python -m tests.support.processor_times FILE`` prints the sums of each folder, and the tests
that take most. A duration would measure the other programs of a busy machine, too.
"""

from __future__ import annotations

import json
import os
import sys
from collections import defaultdict
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

_SHOWN = 40

_TIMES = slice(11, 15)
"""The fields of /proc/PID/stat after the name that are processor times; two of ended children."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Define ``--processor-times``."""
    parser.addoption("--processor-times", type=Path, help="append the processor seconds of tests")


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """Append the seconds of a test to the file."""
    before = _seconds()
    try:
        return (yield)
    finally:
        if file := item.config.getoption("--processor-times"):
            line = {"test": item.nodeid, "seconds": round(_seconds() - before, 4)}
            with file.open("a", encoding="utf-8") as lines:  # a short line is written whole
                lines.write(f"{json.dumps(line)}\n")


def _seconds() -> float:
    """Return the seconds of this process, of those that it or they started, and of ended ones.

    A server and a fork are no children of the test, and they end after it or never.
    """
    ticks, found = 0, [os.getpid()]
    for pid in found:
        with suppress(FileNotFoundError, ProcessLookupError):
            folder = Path("/proc", str(pid))
            fields = (folder / "stat").read_text("utf-8").rpartition(")")[2].split()
            ticks += sum(map(int, fields[_TIMES]))
            for children in folder.glob("task/*/children"):
                found += map(int, children.read_text("utf-8").split())
    return ticks / os.sysconf("SC_CLK_TCK")


def main() -> None:
    """Print the sums of a file."""
    folders: dict[str, list[float]] = defaultdict(list)
    functions: dict[str, list[float]] = defaultdict(list)
    for line in map(json.loads, Path(sys.argv[1]).read_text("utf-8").splitlines()):
        folders[line["test"].rpartition("::")[0].split("/")[1]].append(line["seconds"])
        functions[line["test"].partition("[")[0]].append(line["seconds"])
    for table in (folders, functions):
        for name, all_seconds in sorted(table.items(), key=lambda row: -sum(row[1]))[:_SHOWN]:
            print(f"{sum(all_seconds):9.2f} s  {len(all_seconds):6} cases  {name}")
        print()


if __name__ == "__main__":
    main()
