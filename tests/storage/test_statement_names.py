"""The stores run statements by name: they contain no SQL, and each name is one of a statement."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

import slumberd
from slumberd.logs.event_catalogue import CATALOGUE
from slumberd.sql_statements import ALL_ENGINES, SQLITE, statement, statements
from slumberd.storage.postgres.session import PACKAGE as POSTGRES
from tests.support.lists import of_each
from tests.support.sql_files import files_of, own_files, own_names

pytestmark = pytest.mark.unit

STORAGE = Path(slumberd.__file__).parent / "storage"
NEUTRAL = ("audit", "episodes", "erased_scopes", "facts", "inspections", "ledger")
SQL = re.compile(
    r"\b(SELECT|INSERT|UPDATE|DELETE|PRAGMA|CREATE|DROP|ALTER|ATTACH|VACUUM|BEGIN|COMMIT|ROLLBACK"
    r"|FROM|WHERE|ORDER BY)\b"
)
FILES = files_of()
STATEMENTS = {f"{file}.{name}" for file in FILES for name in statements(file)}
WHOLE_FILES = {"ledger_schema"}
"""Files of which the engine runs every statement, in their order."""

CALLS = {"rows", "stream", "one", "value", "do", "do_each", "insert", "fetch_one", "fetch_all"}
"""The methods whose first argument is the name of a statement."""


class Texts:
    """The texts of a module.

    Attributes:
        whole: The constant texts, without the docstrings.
        parts: The constant parts of its f-strings.
        patterns: A regular expression for what each f-string may become.
    """

    def __init__(self, source: str) -> None:
        self.tree = ast.parse(source)
        joined = [node for node in ast.walk(self.tree) if isinstance(node, ast.JoinedStr)]
        parts = [part for node in joined for part in node.values if isinstance(part, ast.Constant)]
        docstrings = [node.value for node in ast.walk(self.tree) if isinstance(node, ast.Expr)]
        others = {id(node) for node in [*parts, *docstrings]}
        self.whole = {
            node.value
            for node in ast.walk(self.tree)
            if isinstance(node, ast.Constant) and isinstance(node.value, str)
            if id(node) not in others
        }
        self.parts = {str(part.value) for part in parts}
        self.patterns = {"".join(map(_pattern_of, node.values)) for node in joined}

    def sql(self) -> set[str]:
        """Return the texts that contain SQL."""
        return {text for text in self.whole | self.parts if SQL.search(text)}

    def names(self) -> set[str]:
        """Return the texts that look like the name of a statement, whether it exists or not."""
        found = {text for text in self.whole if re.fullmatch(r"\w+\.\w+", text)}
        return {name for name in found if name.partition(".")[0] in FILES} - CATALOGUE.keys()

    def composed_names(self) -> set[str]:
        """Return a regular expression for each name that the module composes."""
        return {pattern for pattern in self.patterns if pattern.partition(r"\.")[0] in FILES}

    def arguments(self) -> set[str]:
        """Return the constant names that the module passes to the methods of a session."""
        return {
            call.args[0].value
            for call in ast.walk(self.tree)
            if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute)
            if call.func.attr in CALLS and call.args and isinstance(call.args[0], ast.Constant)
            if isinstance(call.args[0].value, str)
        }

    def composes(self, name: str) -> bool:
        """Return whether an f-string gives a name, with texts of the module in its gaps."""
        gaps = [
            gap
            for pattern in self.patterns
            if pattern != _GAP and (found := re.fullmatch(pattern, name))
            for gap in [found.groups()]
        ]
        return any(all(map(self._is_made_of_texts, gap)) for gap in gaps)

    def _is_made_of_texts(self, gap: str) -> bool:
        pieces = {text for text in self.whole | self.parts if text and text in gap}
        made = "|".join(map(re.escape, sorted(pieces, key=len, reverse=True)))
        return re.fullmatch(f"(?:{made})*", gap) is not None

    def loaded_files(self) -> set[str]:
        """Return the files whose statements a module of the engine runs by their own names."""
        return {
            str(call.args[0].value)
            for call in ast.walk(self.tree)
            if isinstance(call, ast.Call) and isinstance(call.func, ast.Name)
            if call.func.id == "statements" and isinstance(call.args[0], ast.Constant)
        }

    def selects(self, own_name: str) -> bool:
        """Return whether a module that loads a file names a statement, or begins its name."""
        prefixes = tuple(text for text in self.whole if text.endswith("_"))
        return own_name in self.whole or self.composes(own_name) or own_name.startswith(prefixes)


_GAP = r"(\w+)"


def _pattern_of(part: ast.expr) -> str:
    return re.escape(str(part.value)) if isinstance(part, ast.Constant) else _GAP


@cache
def texts_of(path: Path) -> Texts:
    return Texts(path.read_text())


def neutral_modules() -> list[Path]:
    found = [path for name in NEUTRAL for path in STORAGE.glob(f"{name}/**/*.py")]
    found += [path for name in NEUTRAL for path in STORAGE.glob(f"{name}.py")]
    return sorted(found)


def engine_modules() -> list[Path]:
    sandbox = STORAGE.parent / "rules" / "filters" / "sandbox.py"
    return [*sorted(STORAGE.glob("sqlite/*.py")), sandbox]


def is_used(file: str, own_name: str) -> bool:
    name = f"{file}.{own_name}"
    neutral = [texts_of(path) for path in neutral_modules()]
    engine = [texts_of(path) for path in engine_modules()]
    return (
        any(name in texts.whole or texts.composes(name) for texts in [*neutral, *engine])
        or any(texts.selects(own_name) for texts in engine if file in texts.loaded_files())
        or file in WHOLE_FILES
    )


def name_of(path: Path) -> str:
    return str(path.relative_to(STORAGE))


@pytest.mark.parametrize("package", [SQLITE, POSTGRES])
@of_each(lambda: own_files(ALL_ENGINES))
def test_no_statement_of_all_engines_is_one_of_an_engine_too(file: str, package: str) -> None:
    assert own_names(file, ALL_ENGINES) & own_names(file, package) == set()


@of_each(lambda: own_files(SQLITE))
def test_no_statement_is_equal_in_both_engines(file: str) -> None:
    equal = [
        name
        for name in own_names(file, SQLITE) & own_names(file, POSTGRES)
        if statement(file, name, SQLITE).split() == statement(file, name, POSTGRES).split()
    ]

    assert equal == []


@pytest.mark.slow
@of_each(neutral_modules, name_of)
def test_module_of_a_neutral_package_contains_no_sql(path: Path) -> None:
    assert texts_of(path).sql() == set()


@pytest.mark.slow
@of_each(neutral_modules, name_of)
def test_every_statement_that_a_module_names_exists(path: Path) -> None:
    texts = texts_of(path)
    named = texts.names() | texts.arguments()
    composed = {
        pattern
        for pattern in texts.composed_names()
        if not any(re.fullmatch(pattern, name) for name in STATEMENTS)
    }

    assert named - STATEMENTS == set()
    assert composed == set()


@pytest.mark.slow
@of_each(lambda: FILES)
def test_every_statement_of_a_file_is_used(file: str) -> None:
    unused = [name for name in statements(file) if not is_used(file, name)]

    assert unused == []


def test_checks_find_sql_and_names_without_a_statement() -> None:
    """The tests above can fail."""
    texts = Texts(
        '''"""SELECT: a docstring."""
session.rows("ledger.no_such_name")
session.rows("no_file.at_all")
session.one(f"recent.{name}")
session.one(f"recent.owned_{'user' if user else 'agent'}")
query = f"DELETE FROM {table}"
'''
    )

    assert texts.sql() == {"DELETE FROM "}
    assert texts.names() == {"ledger.no_such_name"}
    assert texts.arguments() == {"ledger.no_such_name", "no_file.at_all"}
    assert texts.composed_names() == {r"recent\.(\w+)", r"recent\.owned_(\w+)"}
    assert [texts.composes(f"recent.owned_{axis}") for axis in ("user", "session")] == [True, False]
