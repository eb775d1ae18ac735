"""Faults are planted in a copy, and reverted; what the tests miss is reported."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterable
from importlib.util import find_spec
from pathlib import Path

import pytest
from coverage import CoverageData

from tests.mutation import python_faults, sql_faults
from tests.mutation.__main__ import faults_to_try, options_from, sampled, within_limit
from tests.mutation.changes import Change
from tests.mutation.copies import SOURCE, TreeCopy, digest_of_source
from tests.mutation.faults import Fault, faults_of, placed, sample
from tests.mutation.recorded import Recorded, RecordedTest, folder_beside, is_current, load, record
from tests.mutation.results import OtherSourceError, Results
from tests.mutation.selection import Package
from tests.mutation.trial import try_fault
from tests.support.repository import ROOT

pytestmark = [pytest.mark.integration, pytest.mark.slow]

ADULT = """\
ADULT = 18


def is_adult(age: int) -> bool:
    if age < 0:
        raise ValueError
    return age >= ADULT
"""
TESTS = """\
from slumberd.adult import is_adult


def test_eighteen_is_adult() -> None:
    assert is_adult(18)
    assert not is_adult(17)


def test_nothing() -> None:
    pass
"""
STATEMENTS = """\
-- part: of_rule
WHERE rule = :rule
  AND n < :n

-- name: newest
SELECT DISTINCT n
FROM firings
-- include: of_rule
ORDER BY n DESC
LIMIT 1

-- name: by_rule
CREATE INDEX firings_rule ON firings (rule, n)
"""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Return a small checkout, with the plugins that run its tests."""
    root = tmp_path / "root"
    for name, text in {"adult.py": ADULT, "firings.sql": STATEMENTS, "__init__.py": ""}.items():
        (root / SOURCE).mkdir(parents=True, exist_ok=True)
        (root / SOURCE / name).write_text(text)
    plugins = root / "tests" / "mutation"
    shutil.copytree(
        ROOT / "tests" / "mutation", plugins, ignore=shutil.ignore_patterns("test_*", "__pycache__")
    )
    (root / "tests" / "test_adult.py").write_text(TESTS)
    return root


def changed(
    source: str, changes: Callable[[str], Iterable[Change]] = python_faults.changes
) -> set[str]:
    """Return a text with each of its faults."""
    return {
        f"{source[: change.start]}{change.text}{source[change.end :]}" for change in changes(source)
    }


def fault(root: Path, before: str, after: str) -> Fault:
    """Return a fault of the small module."""
    path = f"{SOURCE}/adult.py"
    start = ADULT.index(before)
    return Fault(path, ADULT, Change(start, start + len(before), after, "fault"))


# which faults


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("a < b", "(a <= b)"),
        ("a and b", "(a or b)"),
        ("a and b", "(b)"),
        ("not a", "(a)"),
        ("x = 5", "x = (5 + 1)"),
        ("x = True", "x = False"),
        ("x[a:b]", "x[None:b]"),
        ("a - é", "(a + é)"),
        ("f(a, b)", "f(b, a)"),
        ("f(a, key=b)", "f(a)"),
        ("f(a)", "pass"),
        ("sorted(a)", "list(a)"),
        ("[a for a in b if a]", "[a for a in b if True]"),
        ("raise KeyError(a)", "pass"),
        ("def f(a=1): return a", "def f(a=(1 + 1)): return a"),
        ("def f(a=1): return a", "def f(a=1): return None"),
        ("with lock: f()", "if True: f()"),
        ("for a in b:\n  break", "for a in b:\n  continue"),
        ("try: f()\nexcept (A, B): pass", "try: f()\nexcept (B,): pass"),
    ],
)
def test_python_fault_changes_one_thing(before: str, after: str) -> None:
    assert after in changed(before)


@pytest.mark.parametrize(
    "text",
    [
        '"""What it does."""',
        "def f(a: Literal['x']) -> dict[str, int]: ...",
        "_log.info('firing.completed', deltas=1)",
        "title = 'some words for people'",
        "assert a == 1",
        "@dataclass(frozen=True, slots=True)\nclass A:\n    b: int",
        "a = Option(help='rows')",
        "assert_never(a)",
    ],
)
def test_what_tests_need_not_pin_is_never_changed(text: str) -> None:
    assert changed(text) == set()


def test_argument_that_changes_nothing_is_not_dropped() -> None:
    assert "zip(*a)" not in changed("zip(*a, strict=False)")
    assert "zip(*a)" in changed("zip(*a, strict=True)")


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("n < :n", "n <= :n"),
        ("n < :n", "n > :n"),
        ("AND n", "OR n"),
        ("WHERE rule = :rule", "WHERE true"),
        ("\n  AND n < :n", "\n"),
        ("DISTINCT ", ""),
        ("n DESC", "n ASC"),
        ("\nLIMIT 1", ""),
    ],
)
def test_sql_fault_changes_one_thing(before: str, after: str) -> None:
    assert STATEMENTS.replace(before, after) in changed(STATEMENTS, sql_faults.changes)


@pytest.mark.parametrize("text", ["SELECT 1\nFROM t", "SELECT count(*) FILTER (WHERE 1)"])
def test_number_that_only_says_that_there_is_a_row_is_never_changed(text: str) -> None:
    assert not any("2" in other for other in changed(f"-- name: a\n{text}\n", sql_faults.changes))
    assert any("2" in other for other in changed("-- name: a\nLIMIT 1\n", sql_faults.changes))


def test_index_and_headings_of_statements_are_never_changed() -> None:
    kept = [line for line in STATEMENTS.splitlines() if line.startswith(("--", "CREATE INDEX"))]

    for text in changed(STATEMENTS, sql_faults.changes):
        assert [line for line in text.splitlines() if line in kept] == kept


def test_sample_has_one_fault_for_each_line_and_depends_on_the_seed(root: Path) -> None:
    faults = sample(root, 5, seed=3)

    assert len({(fault.path, fault.line) for fault in faults}) == 5
    assert all(fault.changes_something for fault in faults)
    assert [fault.id for fault in faults] == [fault.id for fault in sample(root, 5, seed=3)]
    assert [fault.id for fault in faults] != [fault.id for fault in sample(root, 5, seed=4)]


def test_sample_takes_only_the_named_files(root: Path) -> None:
    only = f"{SOURCE}/adult"

    assert {fault.path for fault in sample(root, 100, 1, [only])} == {f"{only}.py"}


def test_sample_leaves_out_a_file_whose_tests_are_skipped_here(root: Path) -> None:
    sink = root / SOURCE / "workers" / "provenance" / "fathom_sink.py"
    sink.parent.mkdir(parents=True)
    sink.write_text("SIZE = 5\n")

    taken = {fault.path for fault in sample(root, 100, 1)}

    assert (f"{SOURCE}/workers/provenance/fathom_sink.py" in taken) is (
        find_spec("fathom") is not None
    )


def test_stored_fault_is_placed_where_it_was(root: Path) -> None:
    for path, text in {f"{SOURCE}/adult.py": ADULT, f"{SOURCE}/firings.sql": STATEMENTS}.items():
        for one in faults_of(path, text):
            again = placed(root, json.loads(json.dumps(one.stored)))

            assert again is not None
            assert (again.text, again.id, again.diff) == (one.text, one.id, one.diff)


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(f"MORE = 1\n{ADULT}", id="below new lines"),
        pytest.param(ADULT.replace("ValueError", "KeyError"), id="after another change nearby"),
    ],
)
def test_stored_fault_is_placed_in_a_changed_file(root: Path, text: str) -> None:
    stored = fault(root, ">=", ">").stored
    (root / SOURCE / "adult.py").write_text(text)

    again = placed(root, stored)

    assert again is not None
    assert again.text == text.replace(">=", ">")
    assert again.id == stored["id"] == again.stored["id"]


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(ADULT.replace(">= ADULT", "> 17"), id="was changed"),
        pytest.param(
            f"{ADULT.replace('18', '21')}    return age >= ADULT\n".replace("age < 0", "not age"),
            id="is there twice",
        ),
        pytest.param(None, id="has no file"),
    ],
)
def test_stored_fault_is_gone_when_its_line(root: Path, text: str | None) -> None:
    stored = fault(root, ">=", ">").stored
    file = root / SOURCE / "adult.py"
    file.write_text(f"#\n{text}") if text else file.unlink()

    assert placed(root, stored) is None


# where the fault counts


def test_constant_counts_where_functions_use_it(root: Path) -> None:
    (root / SOURCE / "doors.py").write_text(
        "from slumberd.adult import ADULT\n\nSIGN = [ADULT]\n\n\ndef sign():\n    return SIGN\n"
    )

    using, module = Package.read(root).lines_of(fault(root, "18", "19"))

    assert using == {f"{SOURCE}/doors.py": {7}, f"{SOURCE}/adult.py": {7}}
    assert module == {f"{SOURCE}/adult.py": {5, 6, 7}}


def test_entry_of_a_table_counts_where_functions_name_it(root: Path) -> None:
    table = 'EVENTS = ["fact.added"]\n'
    (root / SOURCE / "table.py").write_text(table)
    (root / SOURCE / "log.py").write_text('def added():\n    return "fact.added"\n')
    entry = next(fault for fault in faults_of(f"{SOURCE}/table.py", table))

    assert Package.read(root).lines_of(entry)[0] == {f"{SOURCE}/log.py": {2}}


def test_field_counts_first_in_the_methods_of_its_class_and_where_it_is_made(root: Path) -> None:
    door = "class Door:\n    width = 9\n\n    def area(self):\n        return self.width\n"
    (root / SOURCE / "door.py").write_text(door)
    (root / SOURCE / "house.py").write_text("def house():\n    return Door()\n")
    width = next(fault for fault in faults_of(f"{SOURCE}/door.py", door) if fault.line == 2)

    first, second, *_ = Package.read(root).lines_of(width)

    assert first == {f"{SOURCE}/door.py": {5}}
    assert second == {f"{SOURCE}/house.py": {2}}


def test_condition_counts_at_its_own_line_and_not_in_its_block(root: Path) -> None:
    lines = Package.read(root).lines_of(fault(root, "age < 0", "age <= 0"))

    assert lines == [{f"{SOURCE}/adult.py": {5}}]


def test_part_of_statements_counts_where_they_run(root: Path) -> None:
    (root / SOURCE / "store.py").write_text(
        'SQL = statements("firings")\n\n\ndef newest():\n    return SQL["newest"]\n'
    )
    path = f"{SOURCE}/firings.sql"
    part = next(fault for fault in faults_of(path, STATEMENTS) if fault.line == 2)

    assert Package.read(root).lines_of(part) == [{f"{SOURCE}/store.py": {5}}]


@pytest.mark.parametrize(
    "name",
    [
        pytest.param('"firings.newest"', id="by its full name"),
        pytest.param("f\"firings.{'newest'}\"", id="by a name that it composes"),
        pytest.param("f\"firings.new{'est'}\"", id="by the end of a name"),
    ],
)
def test_statement_counts_where_a_session_runs_it(root: Path, name: str) -> None:
    (root / SOURCE / "store.py").write_text(
        f"def newest(session):\n    return session.rows({name})\n\n\n"
        'def oldest(session):\n    return session.rows("firings.oldest")\n'
    )
    path = f"{SOURCE}/firings.sql"
    part = next(fault for fault in faults_of(path, STATEMENTS) if fault.line == 2)

    assert Package.read(root).lines_of(part) == [{f"{SOURCE}/store.py": {2}}]


def test_part_counts_where_statements_of_other_files_include_it(root: Path) -> None:
    (root / SOURCE / "store.py").write_text(
        'def rules(session):\n    return session.rows("rules.fired")\n'
    )
    (root / SOURCE / "rules.sql").write_text(
        "-- part: known\n-- include: of_rule\n\n-- name: fired\nSELECT 1\n  -- include: known\n"
    )
    path = f"{SOURCE}/firings.sql"
    part = next(fault for fault in faults_of(path, STATEMENTS) if fault.line == 2)

    assert Package.read(root).lines_of(part) == [{f"{SOURCE}/store.py": {2}}]
    assert Package.read(root).statements_at(part) == {"firings.newest", "rules.fired"}


def test_statement_is_tested_by_the_tests_that_have_its_name(root: Path, tmp_path: Path) -> None:
    (root / SOURCE / "other.sql").write_text("-- name: newest\nSELECT 1\n")
    path = f"{SOURCE}/firings.sql"
    part = next(fault for fault in faults_of(path, STATEMENTS) if fault.line == 2)
    ids = [
        f"tests/sql/test_statements_of_firings.py::test_statement[{end}]"
        for end in ("0-firings.newest", "newest", "0-firings.oldest", "other.newest")
    ]
    tests = {id: RecordedTest(id, 0.1) for id in [*ids, "tests/test_all.py::test_all[newest]"]}

    names = Package.read(root).statements_at(part)

    recorded = Recorded(tests, {}, CoverageData(str(tmp_path / "lines")), root)
    assert [test.id for test in recorded.tests_of_statements(names)] == ids[:2]


@pytest.mark.parametrize(
    ("path", "folder"),
    [
        pytest.param("cli/rules.py", "tests/cli", id="of its package"),
        pytest.param("cli/commands/deep/rules.py", "tests/cli", id="of a package around it"),
        pytest.param("clock.py", "tests", id="of all"),
    ],
)
def test_folder_beside_a_file_has_the_tests_of_its_package(
    root: Path, path: str, folder: str
) -> None:
    (root / "tests" / "cli").mkdir()

    assert folder_beside(root, f"{SOURCE}/{path}") == Path(folder)


@pytest.mark.parametrize(("before", "is_one"), [("18", True), ("age: int", True), (">=", False)])
def test_what_an_import_runs_is_a_definition(root: Path, before: str, *, is_one: bool) -> None:
    assert Package.read(root).is_definition(fault(root, before, "x")) is is_one


@pytest.mark.parametrize(
    ("before", "name"), [("age < 0", "is_adult"), ("18", "ADULT"), (">=", "is_adult")]
)
def test_fault_has_the_name_of_what_it_is_in(root: Path, before: str, name: str) -> None:
    assert Package.read(root).name_of(fault(root, before, "x")) == name


# planting


def test_fault_is_in_the_copy_while_the_block_runs(root: Path, tmp_path: Path) -> None:
    copy = TreeCopy(root, tmp_path / "copy")
    planted = fault(root, ">=", ">")
    before = digest_of_source(root)

    with copy.changed(planted.path, planted.text):
        inside = (copy.tree / planted.path).read_text()

    assert inside == ADULT.replace(">=", ">")
    assert (copy.tree / planted.path).read_text() == ADULT
    assert digest_of_source(root) == before


@pytest.mark.nightly
def test_tests_catch_a_fault_that_they_run_and_miss_another(root: Path, tmp_path: Path) -> None:
    record(root, TreeCopy(root, tmp_path / "r"), tmp_path / "lines", 0)
    recorded, package = load(tmp_path / "lines", root), Package.read(root)
    copy = TreeCopy(root, tmp_path / "copy")
    found, missed = fault(root, ">=", ">"), fault(root, "age < 0", "age <= 0")

    trials = [
        try_fault(
            copy, one, recorded.tests_of(package.lines_of(one), one.path, package.name_of(one))
        )
        for one in (found, missed)
    ]

    assert is_current(root, tmp_path / "lines")
    assert [trial.outcome for trial in trials] == ["caught", "survived"]
    assert [trial.by for trial in trials] == ["tests/test_adult.py::test_eighteen_is_adult", ""]
    assert [trial.ran for trial in trials] == [1, 1]
    assert found.diff == "-    return age >= ADULT\n+    return age > ADULT"


@pytest.mark.nightly
def test_recording_goes_on_after_a_kill_and_adds_a_tier(root: Path, tmp_path: Path) -> None:
    (root / "conftest.py").write_text(
        "def pytest_addoption(parser):\n    parser.addoption('--all', action='store_true')\n\n\n"
        "def pytest_configure(config):\n    config.addinivalue_line('markers', 'sampled: more')\n"
    )
    copy, default, added = TreeCopy(root, tmp_path / "r"), tmp_path / "lines", tmp_path / "all"
    record(root, copy, default, 0)
    before = load(default, root)
    (default / "complete").unlink()
    (default / "lines.vm.pid7.x").write_bytes(b"no database")
    (default / "results-7.jsonl").write_text('{"test": "killed", "passed": true}')

    test = copy.tree / "tests" / "test_adult.py"
    test.write_text(f"{TESTS}\n\ndef test_five() -> None:\n    assert not is_adult(5)\n")
    record(root, copy, default, 0)
    test.write_text(
        f"import pytest\n{test.read_text()}\n\ndef test_six() -> None:\n    is_adult(6)\n"
        "\n\n@pytest.mark.sampled\ndef test_nothing() -> None:\n    is_adult(4)\n"
    )
    record(root, copy, added, 0, default=default)

    names = [
        {test.partition("::")[2] for test in load(one, root).tests} for one in (default, added)
    ]
    assert names == [
        {"test_eighteen_is_adult", "test_nothing", "test_five"},
        {"test_six", "test_nothing"},
    ]
    line = [{f"{SOURCE}/adult.py": {7}}]
    again = load(default, root)
    assert [len(one.tests_of(line, f"{SOURCE}/adult.py", "")) for one in (before, again)] == [1, 2]


@pytest.mark.nightly
def test_fault_that_never_ends_is_caught_and_leaves_no_process(root: Path, tmp_path: Path) -> None:
    endless = fault(root, "return age >= ADULT", "while True: pass")
    copy = TreeCopy(root, tmp_path / "copy")
    test = RecordedTest(
        "tests/test_adult.py::test_eighteen_is_adult", -6.0
    )  # a limit of two seconds

    trial = try_fault(copy, endless, [test])

    assert (trial.outcome, trial.by, trial.why) == ("caught", test.id, "time limit")


@pytest.mark.nightly
def test_fault_survives_when_none_of_its_tests_exists_any_more(root: Path, tmp_path: Path) -> None:
    copy = TreeCopy(root, tmp_path / "copy")
    test = RecordedTest("tests/test_adult.py::test_adult[18]", 0.1)

    trial = try_fault(copy, fault(root, ">=", ">"), [test])

    assert (trial.outcome, trial.by, trial.ran) == ("survived", "", 0)


# what is tried

OF_CLOCK = ("--count", "4", "--only", f"{SOURCE}/clock.py")


@pytest.fixture
def results(tmp_path: Path) -> Results:
    """Return an empty file of results."""
    return Results(tmp_path / "results.jsonl")


def ids(faults: Iterable[Fault]) -> list[str]:
    """Return the names of faults."""
    return [fault.id for fault in faults]


def test_sample_is_written_to_its_file_and_read_from_there_later(tmp_path: Path) -> None:
    named = (*OF_CLOCK, "--faults", str(tmp_path / "faults"))

    first = sampled(options_from([*named, "--seed", "1"]))
    later = sampled(options_from([*named, "--seed", "2"]))

    assert len(first) == 4
    assert first == later != sampled(options_from([*OF_CLOCK, "--seed", "2"]))


def test_default_tests_try_only_faults_without_a_result(results: Results) -> None:
    options = options_from(OF_CLOCK)
    first, second, *others = sampled(options)
    results.add({**first, "outcome": "caught"})
    results.add({**second, "outcome": "survived"})

    chosen = faults_to_try(results, "default", options)

    assert ids(chosen) == [fault["id"] for fault in others]


@pytest.mark.parametrize(
    ("tier", "words", "tried"),
    [
        pytest.param("all", (), ["default"], id="survivors of default tests by more tests"),
        pytest.param("default", ("--retry",), ["default", "all"], id="all survivors again"),
    ],
)
def test_survivors_that_nobody_has_judged_are_tried(
    results: Results, tier: str, words: tuple[str, ...], tried: list[str]
) -> None:
    options = options_from([*OF_CLOCK, *words])
    faults = dict(zip(("default", "caught", "judged", "all"), sampled(options), strict=True))
    for name, stored in faults.items():
        outcome = "caught" if name == "caught" else "survived"
        results.add({**stored, "outcome": outcome, "tier": "all" if name == "all" else "default"})
    results.judge(faults["judged"]["id"], "both are zero")

    chosen = faults_to_try(results, tier, options)

    assert ids(chosen) == [faults[name]["id"] for name in tried]


def test_fault_whose_place_is_gone_is_noted_and_not_tried(results: Results, tmp_path: Path) -> None:
    options = options_from([*OF_CLOCK, "--faults", str(tmp_path / "faults")])
    here, gone = sampled(options)[:2]
    gone["path"] = f"{SOURCE}/gone.py"
    (tmp_path / "faults").write_text(f"{json.dumps(here)}\n{json.dumps(gone)}\n")

    chosen = faults_to_try(results, "default", options)

    assert ids(chosen) == [here["id"]]
    assert f"gone {gone['id']} {gone['path']}:{gone['line']}" in results.report()
    assert results.tried() == {gone["id"]}


def test_tests_that_fit_into_the_time_run_in_their_order() -> None:
    tests = [RecordedTest(f"{seconds} s", seconds) for seconds in (7.0, 3.0, 4.0, 2.0, 1.0)]

    assert [test.id for test in within_limit(tests, 5.0)] == ["3.0 s", "2.0 s"]
    assert within_limit(tests, 17.0) == tests


# results


def line_of(id: str, outcome: str) -> dict[str, object]:
    """Return a line of the file of results."""
    place = {"id": id, "path": "a.py", "line": 1, "kind": "boundary", "diff": "-<\n+<="}
    return {**place, "outcome": outcome, "tests": 2, "ran": 2}


def test_results_go_on_where_they_ended_and_report_survivors(tmp_path: Path) -> None:
    path = tmp_path / "results.jsonl"
    results = Results(path)
    results.begin({"seed": 1})
    for id, outcome in {"a": "caught", "b": "survived", "c": "survived"}.items():
        results.add(line_of(id, outcome))
    results.judge("c", "both are zero")

    again = Results(path)
    again.begin({"seed": 1})

    assert again.tried() == {"a", "b", "c"}
    assert set(again.survivors()) == {"b"}
    assert again.report() == (
        "survived b a.py:1 (boundary, 2 of 2 tests)\n-<\n+<=\n\n"
        "default tests catch 1 of 2 faults, 50.0%, 95 % interval 9.5% to 90.5%\n"
        "not tried with the tests that --all adds: 1 survivor\n"
        "all tests catch 1 of 2 faults, 50.0%, 95 % interval 9.5% to 90.5%\n"
        "of those, default tests catch 1 of 1 fault, 100.0%, 95 % interval 20.7% to 100.0%\n"
        "not counted: 1 without effect on behaviour, 0 with no place left"
    )


@pytest.mark.parametrize(
    ("tests", "words"),
    [(1, "1 of 1 test)"), (2, "1 of 2 tests)"), (0, "no test runs it)")],
)
def test_report_says_how_many_tests_of_a_survivor_ran(
    tmp_path: Path, tests: int, words: str
) -> None:
    results = Results(tmp_path / "results.jsonl")
    results.add({**line_of("a", "survived"), "tests": tests, "ran": 1})

    assert words in results.report().splitlines()[0]


def test_report_counts_all_survivors_that_only_default_tests_have_met(tmp_path: Path) -> None:
    results = Results(tmp_path / "results.jsonl")
    for id, tier in {"a": "default", "b": "default", "c": "all"}.items():
        results.add({**line_of(id, "survived"), "tier": tier})

    assert "not tried with the tests that --all adds: 2 survivors\n" in results.report()


def test_results_of_another_source_are_refused(tmp_path: Path) -> None:
    Results(tmp_path / "results.jsonl").begin({"source": "a"})

    with pytest.raises(OtherSourceError, match="another source"):
        Results(tmp_path / "results.jsonl").begin({"source": "b"})
