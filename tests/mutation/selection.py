"""Which tests can find a fault: those that run its lines, or what uses its name."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Set
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import NamedTuple

from tests.mutation.copies import SOURCE
from tests.mutation.faults import Fault

Lines = dict[str, set[int]]
"""Line numbers of each file, below the root."""

_SECTION = re.compile(
    r"^-- (name|part): (\w+)\n(.*?)(?=^-- (?:name|part): |\Z)", re.MULTILINE | re.DOTALL
)
_FUNCTION = (ast.FunctionDef, ast.AsyncFunctionDef)
_STEPS = 3
"""How far a constant is followed through the constants that use it."""


class Mention(NamedTuple):
    """A line that names something.

    Attributes:
        runs: Whether it is in the body of a function; an import runs the others.
        targets: What the statement of another line assigns to.
    """

    path: str
    line: int
    runs: bool
    targets: tuple[str, ...]


@dataclass
class Module:
    """The statements of one Python file."""

    path: str
    tree: ast.Module

    @cached_property
    def bodies(self) -> set[int]:
        """The lines in bodies of functions."""
        return {
            line
            for node in ast.walk(self.tree)
            if isinstance(node, _FUNCTION)
            for line in range(node.body[0].lineno, (node.end_lineno or 0) + 1)
        }

    def statement(self, line: int) -> ast.stmt | None:
        """Return the innermost statement at a line."""
        return self._innermost.get(line)

    @cached_property
    def _innermost(self) -> dict[int, ast.stmt]:
        found: dict[int, ast.stmt] = {}
        # The inner statements come after those around them; the last one starts last.
        for node in sorted(self._statements, key=lambda node: (node.lineno, -_end(node))):
            found |= dict.fromkeys(range(node.lineno, _end(node) + 1), node)
        return found

    @cached_property
    def _statements(self) -> list[ast.stmt]:
        return [node for node in ast.walk(self.tree) if isinstance(node, ast.stmt)]

    def class_at(self, line: int) -> ast.ClassDef | None:
        """Return the innermost class at a line."""
        found = (node for node in self._around(line) if isinstance(node, ast.ClassDef))
        return max(found, key=lambda node: node.lineno, default=None)

    def function_at(self, line: int) -> ast.FunctionDef | ast.AsyncFunctionDef:
        """Return the innermost function at a line in a body."""
        found = (node for node in self._around(line) if isinstance(node, _FUNCTION))
        return max(found, key=lambda node: node.lineno)

    def _around(self, line: int) -> Iterator[ast.stmt]:
        return (node for node in self._statements if node.lineno <= line <= _end(node))

    def mentions(self) -> Iterator[tuple[str, Mention]]:
        """Yield every name and text of the module; texts begin with a quotation mark."""
        for node in ast.walk(self.tree):
            if (name := _name_of(node)) and isinstance(node, ast.expr | ast.keyword):
                runs = node.lineno in self.bodies
                targets = () if runs else _targets(self.statement(node.lineno))
                yield name, Mention(self.path, node.lineno, runs, targets)


@dataclass
class Package:
    """All modules of a package, where they use each name, and its files of SQL statements."""

    modules: dict[str, Module]
    sql: dict[str, str] = field(default_factory=dict)
    uses: dict[str, list[Mention]] = field(default_factory=lambda: defaultdict(list))

    @classmethod
    def read(cls, root: Path) -> Package:
        """Read the package of a checkout."""
        files = [(str(file.relative_to(root)), file) for file in (root / SOURCE).rglob("*.py")]
        package = cls({path: Module(path, ast.parse(file.read_text())) for path, file in files})
        for file in (root / SOURCE).rglob("*.sql"):
            package.sql[str(file.relative_to(root))] = file.read_text()
        for module in package.modules.values():
            for name, mention in module.mentions():
                package.uses[name].append(mention)
        return package

    def lines_of(self, fault: Fault) -> list[Lines]:
        """Return the lines that behave differently with a fault, those that surely do first."""
        if fault.path.endswith(".sql"):
            return [self._lines_of_statement(fault)]
        module = self.modules[fault.path]
        statement = module.statement(fault.line)
        if fault.line in module.bodies:
            return [{fault.path: _own_lines(statement, fault.line)}]
        if isinstance(statement, _FUNCTION):  # a default of an argument, or a decorator
            return [{fault.path: _body(statement)}]
        using = self._lines_using([*_targets(statement), *_texts_in(fault)], {fault.path})
        # Tests may read what an import made without any line of the package.
        return [*self._lines_of_class(module, fault.line), using, {fault.path: module.bodies}]

    def is_definition(self, fault: Fault) -> bool:
        """Return whether an import runs the line: a constant, a field, a default of an argument."""
        return fault.path.endswith(".py") and fault.line not in self.modules[fault.path].bodies

    def statements_at(self, fault: Fault) -> set[str]:
        """Return the full names of the SQL statements with a fault, as ``facts.newest``."""
        if not fault.path.endswith(".sql"):
            return set()
        found = self._statements_of(fault)
        return {f"{file}.{name}" for file, names in found.items() for name in names}

    def name_of(self, fault: Fault) -> str:
        """Return the name of what a fault is in: a test file that has this name may test it."""
        if fault.path.endswith(".sql"):
            return min(chain.from_iterable(self._statements_of(fault).values()), default="")
        module = self.modules[fault.path]
        if fault.line in module.bodies:
            return module.function_at(fault.line).name
        found = module.class_at(fault.line)
        return found.name if found else "".join(_targets(module.statement(fault.line))[:1])

    def _lines_of_class(self, module: Module, line: int) -> list[Lines]:
        found = module.class_at(line)
        if found is None:
            return []
        methods = [node for node in found.body if isinstance(node, _FUNCTION)]
        own = {number for method in methods for number in _body(method)}
        return [{module.path: own}, self._lines_using([found.name], {module.path})]

    def _lines_of_statement(self, fault: Fault) -> Lines:
        lines: Lines = defaultdict(set)
        for file, names in self._statements_of(fault).items():
            for path, found in self._lines_of_names(file, names).items():
                lines[path] |= found
        return lines

    def _lines_of_names(self, file: str, names: set[str]) -> Lines:
        modules = {mention.path for mention in self.uses[f'"{file}']}
        lines = self._lines_using([f'"{name}' for name in names], modules, everywhere=False)
        for path, found in self._lines_using(self._full_names(file, names), set()).items():
            lines[path] = lines.get(path, set()) | found
        return lines or {path: self.modules[path].bodies for path in modules}

    def _full_names(self, file: str, names: set[str]) -> set[str]:
        """Return the full names of statements, and how an f-string may begin them."""
        sources = [source for path, source in self.sql.items() if Path(path).stem == file]
        all_names = {own for source in sources for _, own, _ in _SECTION.findall(source)}
        beginnings = {name[:end] for name in names for end in range(len(name))} - all_names
        return {f'"{file}.{text}' for text in names | beginnings}

    def _statements_of(self, fault: Fault) -> dict[str, set[str]]:
        """Return the statements that contain the place of a fault, by their files."""
        for section in _SECTION.finditer(fault.source):
            if section.start() <= fault.change.start < section.end():
                if section[1] == "part":
                    return self._statements_with(section[2])
                return {Path(fault.path).stem: {section[2]}}
        return {}

    def _statements_with(self, part: str) -> dict[str, set[str]]:
        """Return the statements that include a part, by their files; any file may include it."""
        found: dict[str, set[str]] = defaultdict(set)
        for path, source in self.sql.items():
            for heading, own, text in _SECTION.findall(source):
                if not re.search(rf"^ *-- include: {part}$", text, re.MULTILINE):
                    continue
                if heading == "name":
                    found[Path(path).stem].add(own)
                    continue
                for file, names in self._statements_with(own).items():
                    found[file] |= names
        return found

    def _lines_using(
        self, names: Iterable[str], home: Set[str], *, everywhere: bool = True
    ) -> Lines:
        """Return the lines that use some names; private names, only in the modules at home."""
        lines: Lines = defaultdict(set)
        new, seen = set(names), set[str]()
        for _ in range(_STEPS):
            mentions = [
                mention
                for name in new
                for mention in self.uses.get(name, ())
                if mention.path in home or (everywhere and not name.startswith("_"))
            ]
            for mention in mentions:
                if mention.runs:
                    lines[mention.path].add(mention.line)
            seen |= new
            new = {target for mention in mentions for target in mention.targets} - seen
            everywhere = True
        return dict(lines)


def _end(node: ast.stmt) -> int:
    return node.end_lineno or node.lineno


def _name_of(node: ast.AST) -> str | None:
    match node:
        case ast.Name(id=name) | ast.Attribute(attr=name) | ast.keyword(arg=name):
            return name
        case ast.Constant(value=str(text)):
            return f'"{text}'
        case _:
            pass
    return None


def _targets(statement: ast.stmt | None) -> tuple[str, ...]:
    match statement:
        case ast.Assign(targets=targets):
            return tuple(target.id for target in targets if isinstance(target, ast.Name))
        case ast.AnnAssign(target=ast.Name(id=name)) | ast.ClassDef(name=name):
            return (name,)
        case _:
            pass
    return ()


def _texts_in(fault: Fault) -> list[str]:
    """Return the text that a fault changes, as a name of its uses: an entry of a table, say."""
    try:
        changed = ast.literal_eval(fault.source[fault.change.start : fault.change.end])
    except (SyntaxError, ValueError):
        return []
    return [f'"{changed}'] if isinstance(changed, str) else []


def _body(function: ast.FunctionDef | ast.AsyncFunctionDef) -> set[int]:
    return set(range(function.body[0].lineno, (function.end_lineno or 0) + 1))


def _own_lines(statement: ast.stmt | None, line: int) -> set[int]:
    """Return the lines of a statement, without those of a block below it."""
    if statement is None:
        return {line}
    body = getattr(statement, "body", None) or getattr(statement, "cases", None)
    first = getattr(body[0], "lineno", line + 1) if body else (statement.end_lineno or line) + 1
    return set(range(statement.lineno, max(first, line + 1)))
