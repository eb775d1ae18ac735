"""Measure the processor time of each test, with the processes that it starts and ends.

``pytest -p tests.support.processor_times --processor-times FILE`` appends a line of JSON for each
test. ``python -m tests.support.processor_times FILE`` prints the sums of each folder, and the tests
that take most. A duration would measure the other programs of a busy machine, too.
"""

from __future__ import annotations

import json
import sys
import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from resource import RUSAGE_CHILDREN, getrusage

import pytest

_SHOWN = 40


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
    children = getrusage(RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime


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
