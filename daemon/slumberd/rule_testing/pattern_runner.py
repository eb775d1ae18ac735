"""Find the tests of pattern files, and run them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from slumberd.config.pattern_loader import load_pattern_tests, load_patterns
from slumberd.config.yaml_reader import read_document
from slumberd.errors import ConfigurationError, Mistake
from slumberd.extraction.patterns import run_pattern_tests
from slumberd.model.speaker import PERSON
from slumberd.rule_testing.loader import ENDINGS


class PatternTestResult(NamedTuple):
    """The result of one test of patterns.

    Attributes:
        file: The test file.
        line: The line of the test.
        name: The name of the test.
        failures: What differs, in words; empty when the test passes.
    """

    file: str
    line: int
    name: str
    failures: Sequence[str]

    @property
    def ok(self) -> bool:
        """Whether the test passes."""
        return not self.failures


def is_pattern_test(file: Path) -> bool:
    """Return whether a test file is beside a pattern file, and not beside a rule file."""
    beside = _pattern_file_of(file)
    value = read_document(beside).value if beside.exists() else None
    return isinstance(value, dict) and "patterns" in value


def run_pattern_files(
    files: Iterable[Path], person: Collection[str] = PERSON
) -> list[PatternTestResult]:
    """Run the tests of test files, in order.

    Args:
        files: The test files.
        person: The speakers whose words are those of the user.

    Raises:
        ConfigurationError: A test file, or the pattern file beside it, has mistakes; the error
            lists those of all files.
    """
    results: list[PatternTestResult] = []
    mistakes: list[Mistake] = []
    for file in files:
        try:
            results += _run_file(file, person)
        except ConfigurationError as error:
            mistakes += error.mistakes
    if mistakes:
        raise ConfigurationError(mistakes)
    return results


def _run_file(file: Path, person: Collection[str]) -> list[PatternTestResult]:
    patterns = load_patterns(_pattern_file_of(file))
    return [
        PatternTestResult(str(file), test.line, test.name, run_pattern_tests(patterns, [test]))
        for test in load_pattern_tests(file, person)
    ]


def _pattern_file_of(file: Path) -> Path:
    ending = next(ending for ending in ENDINGS if file.name.endswith(ending))
    return file.with_name(file.name.removesuffix(ending) + ending.removeprefix(".test"))
