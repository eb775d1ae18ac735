"""Rules that name functions of the operator: what is loaded, and every mistake in its place."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from slumberd import Extracted, Turn
from slumberd.model.errors import ConfigurationError
from slumberd.model.extraction import Failed, ModelSettings, Several
from slumberd.model.rule import ConsolidationRule, RuleFunction
from slumberd.rules.rule_loader import RuleSet, load_rules
from tests.support.functions import FIND, MODULE, importable, write_module

pytestmark = pytest.mark.unit

FUNCTION = f"python:{MODULE}:find"
TURN = Turn("e1", "s1", "guest", "Ada drinks tea", 0, "ada", "waiter")
SUMMARISE = """
def shorten(turns, max_tokens):
    return turns[0].content
"""


@pytest.fixture(autouse=True)
def modules(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "modules"
    folder.mkdir()
    with importable(folder):
        yield folder


def load(folder: Path, *stages: str, by_root: bool = False) -> RuleSet:
    lines = "".join(f"      - {stage}\n" for stage in stages)
    rules = folder / "rules"
    rules.mkdir(exist_ok=True)
    (rules / "a.yaml").write_text(
        "rules:\n"
        "  - id: tea\n"
        "    cadence: {every: 1}\n"
        '    when_filter: ""\n'
        "    then_emits: [facts]\n"
        f"    stages:\n{lines}"
    )
    return load_rules(
        rules,
        check_filter=lambda *_: None,
        check_cron=lambda *_: None,
        timezone="UTC",
        by_root=by_root,
    )


def extract_turn(rule: ConsolidationRule) -> Sequence[Extracted] | Failed:
    """Return what the function of a rule finds in a turn."""
    assert rule.extract is not None
    extractor = rule.extract.extractor
    assert not isinstance(extractor, ModelSettings | Several)
    [found] = extractor.extract([TURN], [None])
    return found


def predicates_of(rules: RuleSet) -> list[str]:
    """Return the predicates that the first rule finds in a turn."""
    found = extract_turn(rules.rules[0])
    assert not isinstance(found, Failed)
    return [one.predicate for one in found]


def extracting(name: str = FUNCTION) -> str:
    return f'extract: {{with: "{name}"}}'


def mistake_of(folder: Path, *stages: str, by_root: bool = False) -> str:
    with pytest.raises(ConfigurationError) as caught:
        load(folder, *stages, by_root=by_root)
    return "\n".join(str(one).removeprefix(f"{folder}/rules/") for one in caught.value.mistakes)


def test_function_is_loaded_and_finds_triples(tmp_path: Path, modules: Path) -> None:
    write_module(modules, FIND)

    [rule] = load(tmp_path, extracting()).rules

    assert rule.extract is not None
    assert rule.extract.reads_previous
    assert re.fullmatch(r"[0-9a-f]{16}", rule.extract.digest)
    assert extract_turn(rule) == [Extracted("ada", "drinks", "tea", "add", (11, 14), FUNCTION)]
    assert rule.model_dump()["extract"] == {"with": FUNCTION, "digest": rule.extract.digest}


def test_hash_of_the_rule_changes_with_the_source_and_so_does_the_code(
    tmp_path: Path, modules: Path
) -> None:
    write_module(modules, FIND)
    first = load(tmp_path, extracting())
    # In the same second and of the same length: a cache of Python does not notice this.
    write_module(modules, FIND.replace('"drinks", word', '"enjoys", word'))

    second = load(tmp_path, extracting())

    assert first.content_hash != second.content_hash
    assert predicates_of(second) == ["enjoys"]
    assert load(tmp_path, extracting()).content_hash == second.content_hash


def test_loading_writes_no_cache_beside_the_module(
    tmp_path: Path, modules: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    write_module(modules, FIND)

    load(tmp_path, extracting())

    assert [file.name for file in modules.iterdir()] == [f"{MODULE}.py"]


def test_rules_that_are_in_force_keep_their_code_when_the_source_changes(
    tmp_path: Path, modules: Path
) -> None:
    write_module(modules, "WORD = 'tea'\ndef find(turn, before):\n    raise ValueError(WORD)\n")
    [rule] = load(tmp_path, extracting()).rules
    write_module(modules, "WORD = 'milk'\ndef find(turn, before):\n    raise ValueError(WORD)\n")

    load(tmp_path, extracting())

    assert "tea" in str(extract_turn(rule))


def test_source_with_a_mistake_leaves_the_loaded_module_in_place(
    tmp_path: Path, modules: Path
) -> None:
    write_module(modules, FIND)
    load(tmp_path, extracting())
    before = sys.modules[MODULE]
    write_module(modules, "1 / 0")

    problem = mistake_of(tmp_path, extracting())

    assert "ZeroDivisionError" in problem
    assert sys.modules[MODULE] is before


def test_hash_of_the_rule_changes_with_the_name_of_the_function(
    tmp_path: Path, modules: Path
) -> None:
    write_module(modules, f"{FIND}\nfind_more = find\n")

    hashes = {load(tmp_path, extracting(FUNCTION + end)).content_hash for end in ("", "_more")}

    assert len(hashes) == 2


def test_function_may_be_in_a_package_and_use_its_other_modules(
    tmp_path: Path, modules: Path
) -> None:
    write_module(modules, "DRINK = 'drinks'\n", "operators_package.words")
    source = "from .words import DRINK\n" + FIND.replace('user, "drinks"', "user, DRINK")
    write_module(modules, source, "operators_package.cafe")

    rules = load(tmp_path, extracting("python:operators_package.cafe:find"))

    assert predicates_of(rules) == ["drinks"]


def test_module_that_is_imported_already_is_not_imported_again(tmp_path: Path) -> None:
    import tests.support.functions as known

    load(tmp_path, extracting("python:tests.support.functions:write_module"))

    assert sys.modules["tests.support.functions"] is known


PLACE = "a.yaml:7:25: rules[0].stages[0].extract.with"


@pytest.mark.parametrize(
    ("source", "problem"),
    [
        pytest.param(
            None,
            f"there is no module {MODULE!r}; install it into the environment of slumberd,"
            f" {sys.prefix}",
            id="no module",
        ),
        pytest.param(
            "def fnid(): pass",
            f"module {MODULE!r} has no function 'find'; define it in FILE",
            id="no function",
        ),
        pytest.param(
            "import numpyx",
            f"module {MODULE!r} cannot be imported: ModuleNotFoundError: No module named 'numpyx'",
            id="no import",
        ),
        pytest.param(
            "import sys; sys.exit(2)",
            f"module {MODULE!r} cannot be imported: SystemExit: 2",
            id="exit",
        ),
        pytest.param(
            "\ndef find(:\n",
            f"module {MODULE!r} cannot be imported:"
            f" SyntaxError: invalid syntax ({MODULE}.py, line 2)",
            id="no Python",
        ),
        pytest.param(
            "find = 5",
            "function 'find' is a value of type int; write `def find(turn, before)`",
            id="no function",
        ),
        pytest.param(
            "async def find(turn, before): pass",
            "function 'find' is asynchronous; write `def find(turn, before)`",
            id="async",
        ),
        pytest.param(
            "def find(turn): pass",
            "function 'find' does not take two arguments (too many positional arguments);"
            " write `def find(turn, before)`",
            id="one argument",
        ),
    ],
)
def test_mistake_says_what_is_wrong_with_the_function(
    tmp_path: Path, modules: Path, source: str | None, problem: str
) -> None:
    file = modules / f"{MODULE}.py"
    if source is not None:
        write_module(modules, source)

    found = mistake_of(tmp_path, extracting())

    assert found == f"{PLACE}: {problem}".replace("FILE", str(file))


@pytest.mark.parametrize(
    ("stage", "problem"),
    [
        pytest.param(
            "extract: {with: python}",
            "'patterns', 'conversation', 'heuristic', 'openai' or"
            " 'python:package.module:function' is needed, not"
            " 'python'",
            id="no function",
        ),
        pytest.param(
            'extract: {with: "python:cafe.find"}',
            "'patterns', 'conversation', 'heuristic', 'openai' or"
            " 'python:package.module:function' is needed, not"
            " 'python:cafe.find'",
            id="no colon",
        ),
        pytest.param(
            f'extract: {{with: "{FUNCTION}", patterns: x}}',
            "'patterns' goes with {with: patterns} only",
            id="patterns",
        ),
        pytest.param(
            f'extract: {{with: "{FUNCTION}", speakers: {{a: b}}}}',
            "'speakers' goes with {with: conversation or heuristic or openai} only",
            id="speakers",
        ),
        pytest.param(
            "summarise: {with: model}",
            "'builtin', 'openai' or 'python:package.module:function' is needed, not 'model'",
            id="summarise",
        ),
        pytest.param(
            'extract: {with: "python:sys:exit"}',
            "module 'sys' has no file of its own; name a module with a file",
            id="module of the interpreter",
        ),
        pytest.param('extract: {with: "python:__main__:find"}', "module '__main__' ", id="main"),
    ],
)
def test_mistake_says_what_is_wrong_with_the_stage(
    tmp_path: Path, modules: Path, stage: str, problem: str
) -> None:
    write_module(modules, FIND)

    assert problem in mistake_of(tmp_path, stage)


def test_module_that_everybody_can_write_is_refused_for_root(tmp_path: Path, modules: Path) -> None:
    file = write_module(modules, "raise AssertionError('imported')")
    file.chmod(0o666)

    problem = mistake_of(tmp_path, extracting(), by_root=True)

    assert f"{file}: everybody can write to it (mode 666), and root reads it" in problem


def test_rule_file_that_is_refused_runs_no_code(tmp_path: Path, modules: Path) -> None:
    write_module(modules, FIND)
    load(tmp_path, "decay: {}")
    (tmp_path / "rules").chmod(0o777)

    problem = mistake_of(tmp_path, extracting(), by_root=True)

    assert "everybody can write to it" in problem
    assert MODULE not in sys.modules


def test_summariser_is_loaded_and_changes_the_hash_with_its_source(
    tmp_path: Path, modules: Path
) -> None:
    write_module(modules, SUMMARISE)
    stage = f'summarise: {{with: "python:{MODULE}:shorten", max_tokens: 9}}'
    first = load(tmp_path, stage)
    write_module(modules, SUMMARISE.replace("[0]", "[1]"))

    second = load(tmp_path, stage)

    [rule] = first.rules
    assert isinstance(rule.summariser, RuleFunction)
    assert rule.model_dump()["summariser"] == {
        "with": f"python:{MODULE}:shorten",
        "digest": rule.summariser.digest,
    }
    assert rule.summariser.call([TURN], 9) == TURN.content
    assert first.content_hash != second.content_hash


def test_builtin_summariser_is_the_default_and_leaves_the_hash_alone(tmp_path: Path) -> None:
    default, builtin = (
        load(tmp_path, f"summarise: {keys}") for keys in ("{}", "{with: builtin}")
    )  # fmt: skip

    assert default.rules == builtin.rules
    assert default.rules[0].summariser is None
    assert default.content_hash == builtin.content_hash


@pytest.mark.slow
def test_schema_imports_nothing_of_the_operators(tmp_path: Path, modules: Path) -> None:
    write_module(modules, "raise AssertionError('imported')")
    program = "from slumberd.cli.json_schemas import schema_text; print(schema_text('rules'))"

    done = subprocess.run(
        [sys.executable, "-c", f"{program}; import sys; assert {MODULE!r} not in sys.modules"],
        capture_output=True,
        text=True,
        env={"PYTHONPATH": str(modules)},
        check=True,
    )

    assert "python:" in done.stdout
