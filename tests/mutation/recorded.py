"""Record the tests of a tier once, and read which tests ran a line."""

from __future__ import annotations

import json
import re
import shutil
import sysconfig
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import coverage
import pytest

from tests.mutation import recording
from tests.mutation.copies import SOURCE, TreeCopy, digest_of_source
from tests.mutation.selection import Lines
from tests.support.repository import ROOT

_START = (
    "import os; "
    "'COVERAGE_PROCESS_START' in os.environ and __import__('coverage').process_startup()\n"
)
"""A line that every Python of the copy runs when it starts."""


_OF_DEFINITIONS = ("tests/test_defaults.py::", "tests/test_errors.py::")
"""Tests that look at what imports have defined, so that they run no line of it."""


_ABOUT, _COMPLETE = "about.json", "complete"

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
            contexts = self._contexts(str((self.root / file).resolve()))
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


def record(
    root: Path, copy: TreeCopy, folder: Path, workers: int, *, default: Path | None = None
) -> None:
    """Run the tests in a copy, and write what they ran into a folder; go on if it has some.

    Args:
        root: The checkout of the copy.
        copy: Where the tests run.
        folder: Where the recording goes.
        workers: How many processes run tests.
        default: The recording of the default tests; if given, those that ``--all`` adds run.
    """
    few = _tests_in(default) if default else {}
    _begin(root, copy, folder, few)
    packages = sysconfig.get_path("purelib", vars={"base": str(copy.tree / ".venv")})
    Path(packages, "recording.pth").write_text(_START)
    words = ["-m", "pytest", "-p", "tests.mutation.recording", "-q", "-n", str(workers)]
    words += ["-p", "no:langsmith_plugin"]  # it takes a second to start
    words += ["-p", "no:cacheprovider", f"--basetemp={copy.temporary}"]
    words += ["-o", "tmp_path_retention_policy=none", *(["--all"] if default else [])]
    process = copy.start(*words, **{recording.FOLDER: str(folder)})
    try:
        output, _ = process.communicate()
    finally:
        copy.end_processes()
    if process.returncode not in {0, 1, pytest.ExitCode.NO_TESTS_COLLECTED}:
        raise RecordingError(output.decode(errors="replace")[-3000:])
    _combine(folder)
    (folder / _COMPLETE).touch()


def _begin(root: Path, copy: TreeCopy, folder: Path, default: Iterable[str]) -> None:
    """Make the folder, or keep what an interrupted recording of the same package left there."""
    source = {"source": digest_of_source(root)}
    if not folder.exists() or _about(folder) != source:
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        (folder / _ABOUT).write_text(json.dumps(source))
    settings = recording.SETTINGS.format(
        root=(root / SOURCE).resolve(), source=copy.tree / SOURCE, folder=folder
    )
    (folder / "coverage.ini").write_text(settings)
    _drop_broken(folder)
    _combine(folder)
    done = {"recorded": list(_tests_in(folder)), "default": list(default)}
    (folder / recording.DONE).write_text(json.dumps(done))


def _drop_broken(folder: Path) -> None:
    """Delete data that a killed process left unreadable; the tests of that process run again."""
    for file in folder.glob("lines.*"):
        try:
            data = coverage.CoverageData(str(file))
            data.read()
            data.measured_contexts()
        except coverage.CoverageException:
            file.unlink()
            if process := re.search(r"\.pid(\d+)\.", file.name):
                (folder / f"results-{process[1]}.jsonl").unlink(missing_ok=True)


def _combine(folder: Path) -> None:
    combined = coverage.Coverage(config_file=str(folder / "coverage.ini"))
    combined.load()
    combined.combine([str(folder)])
    combined.save()


def is_current(root: Path, folder: Path) -> bool:
    """Return whether a folder holds a complete recording of the package as it is."""
    complete = (folder / _COMPLETE).exists()
    return complete and _about(folder) == {"source": digest_of_source(root)}


def _about(folder: Path) -> dict[str, str] | None:
    about = folder / _ABOUT
    return json.loads(about.read_text()) if about.exists() else None


def _tests_in(folder: Path) -> dict[str, dict[str, Any]]:
    """Return the recorded tests; a line that a killed process left unfinished does not count."""
    tests: dict[str, dict[str, Any]] = {}
    for file in folder.glob("results-*.jsonl"):
        for line in file.read_text().splitlines():
            with suppress(ValueError):
                test = json.loads(line)
                tests[test["test"]] = test
    return tests


def load(folder: Path, root: Path = ROOT) -> Recorded:
    """Read a recording."""
    tests: dict[str, RecordedTest] = {}
    shared: dict[str, set[str]] = {}
    for name, test in _tests_in(folder).items():
        if test["passed"]:
            tests[name] = RecordedTest(name, test["seconds"])
            for fixture in test["shared"]:
                shared.setdefault(fixture, set()).add(name)
    data = coverage.CoverageData(str(folder / "lines"))
    data.read()
    return Recorded(tests, shared, data, root)
