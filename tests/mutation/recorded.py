"""Record the default tests once, and read which tests ran a line."""

from __future__ import annotations

import json
import re
import shutil
import sysconfig
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import coverage

from tests.mutation import recording
from tests.mutation.copies import ROOT, SOURCE, TreeCopy, digest_of_source
from tests.mutation.selection import Lines

_START = (
    "import os; "
    "'COVERAGE_PROCESS_START' in os.environ and __import__('coverage').process_startup()\n"
)
"""A line that every Python of the copy runs when it starts."""


_OF_DEFINITIONS = ("tests/test_defaults.py::", "tests/test_errors.py::")
"""Tests that look at what imports have defined, so that they run no line of it."""


_OF_STATEMENTS = "/test_statements_of_"


class RecordingError(Exception):
    """The tests could not be recorded."""


@dataclass(frozen=True)
class RecordedTest:
    """One test, and how long it takes."""

    id: str
    seconds: float


@dataclass
class Recorded:
    """What one run of the tests showed."""

    tree: Path
    tests: dict[str, RecordedTest]
    shared: dict[str, set[str]]
    data: coverage.CoverageData
    root: Path = ROOT

    def __post_init__(self) -> None:
        self._contexts = lru_cache(maxsize=16)(self.data.contexts_by_lineno)

    def tests_of_definitions(self) -> list[RecordedTest]:
        """Return the tests of the tables of all definitions."""
        return [test for name, test in self.tests.items() if name.startswith(_OF_DEFINITIONS)]

    def tests_of_statements(self, names: Iterable[str]) -> list[RecordedTest]:
        """Return the tests of statements whose ids end with one of these full names, or its end.

        They run the statement itself, and no line of the package that names it.
        """
        ends = {end for name in names for end in (name, name.partition(".")[2])}
        return [
            test
            for name, test in self.tests.items()
            if _OF_STATEMENTS in name and re.split(r"[\[-]", name)[-1].rstrip("]") in ends
        ]

    def tests_of(self, groups: Sequence[Lines], path: str, name: str) -> list[RecordedTest]:
        """Return the tests that run some of these lines, the most telling ones first.

        Args:
            groups: The lines.
            path: The file of the fault.
            name: The function, class or statement of the fault.
        """
        chosen: dict[RecordedTest, None] = {}
        for lines in groups:
            chosen |= dict.fromkeys(self._in_order(self._tests_of(lines) - set(chosen), path, name))
        return list(chosen)

    def _tests_of(self, lines: Lines) -> set[RecordedTest]:
        names: set[str] = set()
        for file, numbers in lines.items():
            contexts = self._contexts(str(self.tree / file))
            for number in numbers:
                names.update(contexts.get(number, ()))
        found = {
            test
            for name in names
            for test in (self.shared.get(name, ()) if name not in self.tests else (name,))
        }
        return {self.tests[name] for name in found if name in self.tests}

    def _in_order(
        self, tests: Iterable[RecordedTest], path: str, name: str
    ) -> Iterator[RecordedTest]:
        """Yield tests by file: those that name the code, then those beside it, then quick ones."""
        files: dict[str, list[RecordedTest]] = {}
        for test in sorted(tests, key=lambda test: (test.seconds, test.id)):
            files.setdefault(test.id.split("::")[0], []).append(test)
        beside = f"{folder_beside(self.root, path)}/"
        word = re.compile(rf"\b{re.escape(name)}\b" if name else r"(?!)")

        def rank(file: str) -> tuple[bool, bool, float]:
            seconds = [test.seconds for test in files[file]]
            is_named = word.search((self.root / file).read_text(encoding="utf-8")) is not None
            return not is_named, not file.startswith(beside), sum(seconds) / len(seconds)

        for file in sorted(files, key=rank):
            yield from files[file]


def folder_beside(root: Path, path: str) -> Path:
    """Return the folder of the tests of a file: that of its package, or of one around it."""
    folder = Path("tests", *Path(path).relative_to(SOURCE).parent.parts)
    while not (root / folder).is_dir():
        folder = folder.parent
    return folder


def record(root: Path, copy: TreeCopy, folder: Path, workers: int, tests: Iterable[str]) -> None:
    """Run the tests in a copy, and write what they ran into a folder."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    settings = recording.SETTINGS.format(source=copy.tree / SOURCE, folder=folder)
    (folder / "coverage.ini").write_text(settings)
    packages = sysconfig.get_path("purelib", vars={"base": str(copy.tree / ".venv")})
    Path(packages, "recording.pth").write_text(_START)
    words = ["-m", "pytest", "-p", "tests.mutation.recording", "-q", "-n", str(workers)]
    words += ["-p", "no:cacheprovider", f"--basetemp={copy.temporary}", *tests]
    process = copy.start(*words, **{recording.FOLDER: str(folder)})
    output, _ = process.communicate()
    copy.end_processes()
    if process.returncode not in {0, 1}:
        raise RecordingError(output.decode(errors="replace")[-3000:])
    combined = coverage.Coverage(config_file=str(folder / "coverage.ini"))
    combined.combine([str(folder)])
    combined.save()
    about = {"source": digest_of_source(root), "tree": str(copy.tree)}
    (folder / "about.json").write_text(json.dumps(about))


def is_current(root: Path, folder: Path) -> bool:
    """Return whether a folder holds a recording of the package as it is."""
    about = folder / "about.json"
    return about.exists() and json.loads(about.read_text())["source"] == digest_of_source(root)


def load(folder: Path, root: Path = ROOT) -> Recorded:
    """Read a recording."""
    tests: dict[str, RecordedTest] = {}
    shared: dict[str, set[str]] = {}
    for file in folder.glob("results-*.jsonl"):
        for line in map(json.loads, file.read_text().splitlines()):
            if line.get("passed"):
                tests[line["test"]] = RecordedTest(line["test"], line["seconds"])
            for fixture in line.get("shared", ()):
                shared.setdefault(fixture, set()).add(line["test"])
    data = coverage.CoverageData(str(folder / "lines"))
    data.read()
    tree = Path(json.loads((folder / "about.json").read_text())["tree"])
    return Recorded(tree, tests, shared, data, root)
