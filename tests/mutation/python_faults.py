"""Faults of Python source.

Left out is what tests need not pin: docstrings, annotations, log lines, texts for people (with a
space in them), ``__all__``, protocols, ``assert_never``, and what only type checkers read.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from itertools import pairwise

from tests.mutation.changes import Change

_Part = tuple[ast.AST, str, str]
"""What is replaced, the new text, and the kind of the fault."""

_COMPARISONS: dict[type[ast.cmpop], list[tuple[type[ast.cmpop], str]]] = {
    ast.Eq: [(ast.NotEq, "comparison")],
    ast.NotEq: [(ast.Eq, "comparison")],
    ast.Lt: [(ast.LtE, "boundary"), (ast.GtE, "comparison")],
    ast.LtE: [(ast.Lt, "boundary"), (ast.Gt, "comparison")],
    ast.Gt: [(ast.GtE, "boundary"), (ast.LtE, "comparison")],
    ast.GtE: [(ast.Gt, "boundary"), (ast.Lt, "comparison")],
    ast.Is: [(ast.IsNot, "comparison")],
    ast.IsNot: [(ast.Is, "comparison")],
    ast.In: [(ast.NotIn, "comparison")],
    ast.NotIn: [(ast.In, "comparison")],
}
_ARITHMETIC: dict[type[ast.operator], type[ast.operator]] = {
    ast.Sub: ast.Add,
    ast.Mult: ast.FloorDiv,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.Mult,
    ast.LShift: ast.RShift,
    ast.RShift: ast.LShift,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
}
_CALLS = {"min": "max", "max": "min", "any": "all", "all": "any", "sorted": "list"}
_LOG_METHODS = {"debug", "info", "warning", "error", "exception", "critical", "log"}
_SILENT = {None, "help", "metavar", "title", "description", "epilog", "frozen", "slots"}
"""Arguments that are words for people, or that forbid what no code does; None is ``**``."""
_WORD = re.compile(r"\S*")


def changes(source: str) -> Iterator[Change]:
    """Yield every fault of a module; a few do not compile, or change nothing."""
    tree = ast.parse(source)
    offsets = _Offsets(source)
    for node in _visible(tree):
        for part, text, kind in _parts(node):
            yield Change(*offsets.of(part), text, kind)


def differs(source: str, other: str) -> bool:
    """Return whether another text compiles, and to something else."""
    try:
        compile(other, "fault", "exec", dont_inherit=True)
    except SyntaxError:
        return False
    return ast.dump(ast.parse(source)) != ast.dump(ast.parse(other))


class _Offsets:
    """Places of nodes in characters; ``ast`` counts lines, and bytes in them."""

    def __init__(self, source: str) -> None:
        self._lines = source.splitlines(keepends=True)
        self._starts = [0]
        for line in self._lines:
            self._starts.append(self._starts[-1] + len(line))

    def of(self, part: ast.AST) -> tuple[int, int]:
        """Return where a node starts and ends."""
        assert isinstance(part, ast.expr | ast.stmt | _Header | ast.keyword | ast.arg)
        assert part.end_lineno is not None
        assert part.end_col_offset is not None
        return (
            self._offset(part.lineno, part.col_offset),
            self._offset(part.end_lineno, part.end_col_offset),
        )

    def _offset(self, line: int, column: int) -> int:
        before = self._lines[line - 1].encode()[:column]
        return self._starts[line - 1] + len(before.decode())


class _Header(ast.AST):
    """The text from the start of a statement to the end of an expression in its first line."""

    def __init__(self, statement: ast.stmt, last: ast.expr) -> None:
        super().__init__()
        self.lineno, self.col_offset = statement.lineno, statement.col_offset
        self.end_lineno, self.end_col_offset = last.end_lineno, last.end_col_offset


# What is visited


def _visible(node: ast.AST) -> Iterator[ast.AST]:
    """Yield a node and what is in it, without what must not change."""
    yield node
    for child in _children(node):
        if not _is_left_out(child):
            yield from _visible(child)


def _children(node: ast.AST) -> Iterator[ast.AST]:
    hidden = {"annotation", "returns", "type_comment", "type_params"}
    if isinstance(node, ast.Call) and _names_type(node.func):
        hidden = hidden | {"args"}
    if isinstance(node, ast.JoinedStr):
        return
    if isinstance(node, ast.keyword) and node.arg in _SILENT - {None}:
        return
    for name, value in ast.iter_fields(node):
        if name not in hidden:
            children = value if isinstance(value, list) else [value]
            yield from (child for child in children if isinstance(child, ast.AST))


def _is_left_out(node: ast.AST) -> bool:
    match node:
        case ast.Expr(value=ast.Constant()):  # a docstring
            return True
        case ast.Expr(value=ast.Call(func=ast.Name(id="assert_never"))):  # no value gets there
            return True
        case ast.Expr(value=ast.Call(func=ast.Attribute(value=logger, attr=method))):
            return method in _LOG_METHODS and ast.unparse(logger).endswith(("log", "logger"))
        case ast.If(test=test) if "TYPE_CHECKING" in ast.unparse(test):
            return True
        case ast.ClassDef(bases=bases):
            return any("Protocol" in ast.unparse(base) for base in bases)
        case ast.Assign(targets=[ast.Name(id=name)], value=value):
            return name == "__all__" or _is_type(value)
        case ast.Import() | ast.ImportFrom() | ast.Assert():
            return True
        case _:
            pass
    return False


def _is_type(value: ast.expr) -> bool:
    match value:
        case ast.Call(func=func):
            return _names_type(func) or ast.unparse(func).endswith("get_logger")
        case ast.Subscript(value=ast.Name(id=name)):
            return name in {"Callable", "Annotated", "dict", "list", "tuple", "Mapping", "Literal"}
        case ast.BinOp(op=ast.BitOr(), right=right):
            return isinstance(right, ast.Name | ast.Constant | ast.Subscript)
        case _:
            pass
    return False


def _names_type(func: ast.expr) -> bool:
    return ast.unparse(func) in {"TypeVar", "NewType", "cast", "ParamSpec", "typing.cast"}


# What can go wrong


def _parts(node: ast.AST) -> Iterator[_Part]:
    match node:
        case ast.stmt():
            yield from _stated(node)
            yield from _left(node)
        case ast.Compare() | ast.BoolOp() | ast.UnaryOp(op=ast.Not()) | ast.IfExp():
            yield from _decided(node)
        case ast.BinOp():
            yield from _computed(node)
        case ast.Constant():
            yield from _constant(node)
        case ast.Call():
            yield from _called(node)
        case ast.comprehension(ifs=[*conditions]):
            yield from ((condition, "True", "condition dropped") for condition in conditions)
        case ast.Slice(lower=lower, upper=upper):
            yield from ((end, "None", "boundary") for end in (lower, upper) if end)
        case _:
            pass


def _decided(node: ast.expr) -> Iterator[_Part]:
    match node:
        case ast.Compare():
            yield from _compared(node)
        case ast.BoolOp():
            yield from _combined(node)
        case ast.UnaryOp(operand=operand):
            yield node, f"({ast.unparse(operand)})", "not removed"
        case ast.IfExp(test=test):
            yield test, f"(not {ast.unparse(test)})", "condition negated"
        case _:
            pass


def _compared(node: ast.Compare) -> Iterator[_Part]:
    for place, operator in enumerate(node.ops):
        for other, kind in _COMPARISONS[type(operator)]:
            operators = [*node.ops[:place], other(), *node.ops[place + 1 :]]
            changed = ast.Compare(node.left, operators, node.comparators)
            yield node, f"({ast.unparse(changed)})", kind


def _combined(node: ast.BoolOp) -> Iterator[_Part]:
    other = ast.Or() if isinstance(node.op, ast.And) else ast.And()
    yield node, f"({ast.unparse(ast.BoolOp(other, node.values))})", "and or"
    for place in range(len(node.values)):
        rest = [*node.values[:place], *node.values[place + 1 :]]
        whole = rest[0] if len(rest) == 1 else ast.BoolOp(node.op, rest)
        yield node, f"({ast.unparse(whole)})", "condition dropped"


def _computed(node: ast.BinOp) -> Iterator[_Part]:
    if isinstance(node.left, ast.Constant | ast.JoinedStr) and isinstance(node.op, ast.Mod):
        return
    if isinstance(node.op, ast.Add):
        yield node, f"({ast.unparse(node.left)})", "arithmetic"
    elif other := _ARITHMETIC.get(type(node.op)):
        yield node, f"({ast.unparse(ast.BinOp(node.left, other(), node.right))})", "arithmetic"


def _constant(node: ast.Constant) -> Iterator[_Part]:
    match node.value:
        case bool(value):
            yield node, str(not value), "constant"
        case int(value) | float(value):
            yield from ((node, f"({value} {step})", "constant") for step in ("+ 1", "- 1"))
        case str(value) if _WORD.fullmatch(value):
            yield node, repr(f"{value}x"), "constant"
        case bytes(value):
            yield node, repr(value + b"x"), "constant"
        case _:
            pass


def _called(node: ast.Call) -> Iterator[_Part]:
    if isinstance(node.func, ast.Name) and node.func.id in _CALLS:
        yield node.func, _CALLS[node.func.id], "other function"
        if node.func.id == "sorted":
            yield node, f"list({ast.unparse(node.args[0])})", "order"
    if ast.unparse(node.func) == "reversed":
        yield node, f"iter({ast.unparse(node.args[0])})", "order"
    for place, (one, two) in enumerate(pairwise(node.args)):
        arguments = [*node.args[:place], two, one, *node.args[place + 2 :]]
        changed = ast.Call(node.func, arguments, node.keywords)
        yield node, ast.unparse(changed), "arguments swapped"
    for keyword in node.keywords:
        rest = [other for other in node.keywords if other is not keyword]
        if keyword.arg not in _SILENT and not _is_usual(keyword):
            changed = ast.Call(node.func, node.args, rest)
            yield node, ast.unparse(changed), "argument dropped"


def _is_usual(keyword: ast.keyword) -> bool:
    """Return whether an argument only says what is so without it: ``strict`` of ``zip``."""
    value = keyword.value
    return keyword.arg == "strict" and isinstance(value, ast.Constant) and not value.value


def _stated(node: ast.stmt) -> Iterator[_Part]:
    match node:
        case ast.Expr(value=ast.Call() | ast.Await()) | ast.AugAssign() | ast.Delete():
            yield node, "pass", "statement deleted"
        case ast.Assign(targets=[ast.Attribute() | ast.Subscript(), *_]):
            yield node, "pass", "statement deleted"
        case ast.If(test=test) | ast.While(test=test):
            yield test, f"(not {ast.unparse(test)})", "condition negated"
        case ast.With(items=[item]) | ast.AsyncWith(items=[item]) if item.optional_vars is None:
            yield _Header(node, item.context_expr), "if True", "block unprotected"
        case ast.Try(handlers=handlers):
            yield from _handled(handlers)
        case _:
            pass


def _left(node: ast.stmt) -> Iterator[_Part]:
    """Change a statement that ends a block."""
    match node:
        case ast.Raise(exc=raised):
            yield node, "pass", "exception swallowed" if raised is None else "check deleted"
        case ast.Break():
            yield node, "continue", "loop"
        case ast.Continue():
            yield from ((node, other, "loop") for other in ("break", "pass"))
        case ast.Return(value=ast.expr() as value) if not _is_none(value):
            yield node, "return None", "return value dropped"
            yield from _returned(value)


def _returned(value: ast.expr) -> Iterator[_Part]:
    if isinstance(value, ast.Compare | ast.BoolOp):
        yield value, f"(not ({ast.unparse(value)}))", "condition negated"


def _handled(handlers: list[ast.ExceptHandler]) -> Iterator[_Part]:
    for handler in handlers:
        if isinstance(handler.type, ast.Tuple):
            for place in range(len(handler.type.elts)):
                rest = [*handler.type.elts[:place], *handler.type.elts[place + 1 :]]
                yield handler.type, ast.unparse(ast.Tuple(rest, ast.Load())), "exception not caught"


def _is_none(value: ast.expr) -> bool:
    return isinstance(value, ast.Constant) and value.value is None
