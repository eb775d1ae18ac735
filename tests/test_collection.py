"""Collection imports no large library; a test of a list names all that is wrong in it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from resource import RUSAGE_CHILDREN, getrusage
from typing import NamedTuple

import pytest

from tests.support.lists import of_each
from tests.support.repository import ROOT
from tests.support.waiting import PATIENCE_SECONDS

pytestmark = pytest.mark.integration

SECONDS = 20.0
"""The processor time that the collection of the default tests may take in one process."""

LARGE = [
    "agents", "anthropic", "google.protobuf", "graphglot", "ladybug", "langchain_core",
    "langgraph", "langsmith", "mcp", "mcp_types", "numpy", "openai", "opentelemetry.sdk",
    "playwright", "redis", "requests", "schemathesis", "wordllama",
]  # fmt: skip
"""Libraries that few tests use; `tests/support/late_imports.py` imports them when a test runs."""

# The import system and pytest compile modules, too; `ast.parse` compiles for its caller.
WATCHED = """
import json, re, sys
import pytest


starts = {"subprocess.Popen", "os.exec", "os.fork", "os.forkpty", "os.posix_spawn", "os.system"}
processes, trees = [], []

def watch(event, arguments):
    if event in starts:
        processes.append(f"{event} {arguments[0]!r}")
    elif event == "compile":
        frame = sys._getframe(1)
        while frame and frame.f_globals.get("__name__") == "ast":
            frame = frame.f_back
        place = frame.f_code.co_filename if frame else "<"
        if not re.match("<|.*/(site-packages|lib/python[0-9.]+)/", place):
            trees.append(f"{place}:{frame.f_lineno}")

sys.addaudithook(watch)
sys.path.insert(0, "")
code = pytest.main(["--collect-only", "-qq", *sys.argv[2:]])
imported = [name for name in json.loads(sys.argv[1]) if name in sys.modules]
found = {"code": code, "imported": imported, "processes": processes, "trees": trees}
sys.stderr.write("\\n" + json.dumps(found))
"""


class Collected(NamedTuple):
    """What a collection in a process of its own did.

    Attributes:
        code: The exit code of pytest.
        imported: Which of the large libraries it imported.
        processes: Which processes it started.
        trees: Where modules of the project compiled a text.
        seconds: The processor time that it took.
    """

    code: int
    imported: list[str]
    processes: list[str]
    trees: list[str]
    seconds: float


def collect(folder: Path, *options: str) -> Collected:
    # Pytest keeps what it rewrites, unless this variable is set.
    unset = "PYTHONDONTWRITEBYTECODE"
    environment = {name: value for name, value in os.environ.items() if name != unset}
    command = [sys.executable, "-c", WATCHED, json.dumps(LARGE), *options]
    before = getrusage(RUSAGE_CHILDREN)
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True,
        timeout=PATIENCE_SECONDS,
    )  # fmt: skip
    after = getrusage(RUSAGE_CHILDREN)
    seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    assert done.returncode == 0, done.stderr
    return Collected(**json.loads(done.stderr.splitlines()[-1]), seconds=seconds)


@pytest.fixture(scope="module")
def collected() -> Collected:
    return collect(ROOT)


@pytest.mark.slow
def test_collection_imports_no_large_library(collected: Collected) -> None:
    assert (collected.code, collected.imported) == (0, [])


@pytest.mark.slow
def test_collection_starts_no_process_and_reads_no_syntax_tree(collected: Collected) -> None:
    assert (collected.processes, collected.trees) == ([], [])


@pytest.mark.slow
def test_collection_takes_little_processor_time(collected: Collected) -> None:
    # It needs half of this. The first collection may have compiled what was new.
    assert collected.seconds <= SECONDS or collect(ROOT).seconds <= SECONDS


@pytest.mark.slow
def test_check_of_the_collection_finds_each_fault(tmp_path: Path) -> None:
    (tmp_path / "pytest.ini").write_text("[pytest]")
    (tmp_path / "anthropic.py").write_text("")
    (tmp_path / "test_bad.py").write_text(
        "import ast, subprocess\n"
        "import anthropic\n"
        "subprocess.run(['true'])\n"
        "ast.parse('1')\n"
        "compile('1', 'x', 'eval')\n"
        "def test_a(): pass\n"
    )

    found = collect(tmp_path, "-p", "no:langsmith_plugin", "-p", "no:schemathesis")

    assert (found.code, found.imported) == (0, ["anthropic"])
    assert found.processes[0] == "subprocess.Popen 'true'"
    assert [Path(place).name for place in found.trees] == ["test_bad.py:4", "test_bad.py:5"]
    assert found.seconds > 0


def test_test_of_a_list_names_every_wrong_entry(tmp_path: Path) -> None:
    @of_each(lambda: [1, 2, 3, 4])
    def check(number: int, tmp_path: Path) -> None:
        assert number % 2, f"not odd in {tmp_path.name}"

    with pytest.raises(AssertionError) as caught:
        check(tmp_path=tmp_path)

    assert [line[:18] for line in str(caught.value).splitlines() if line[0].isdigit()] == [
        "2: AssertionError:",
        "4: AssertionError:",
    ]
    assert str(caught.value).count(f"not odd in {tmp_path.name}") == 2


def test_test_of_an_empty_list_fails() -> None:
    @of_each(list[int])
    def check(_: int) -> None:
        raise AssertionError

    with pytest.raises(AssertionError, match="the list is empty"):
        check()
