"""Limit the size of the values that a query builds without reading the graph.

A database computes constants while it plans a query. Neither its timeout nor its buffer pool
applies there. It checks the timeout between rows, not within one value. So a range of ten thousand
million numbers, or a text that doubles twenty times, ends the process. The limit is static: it
counts the parts that each expression may copy, whatever the graph holds.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, NoReturn

from slumberd.workers.graph.cypher_parser import Node, QueryText, children, kind, spans, walk


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


MAX_PARTS = 100_000
"""The most numbers of a range, and characters or elements of a value."""

UNBOUNDED_VALUE = "unbounded-value"
"""The rule that is broken by a query that may build a larger value."""

_ASSUMED_PARTS = 100
"""The parts of a property or element of the graph; the real size is unknown."""

_COLLECTED_PARTS = 50_000
"""The parts of a collected list; the real size is unknown."""

_SCALARS = _words("""
    AbsoluteValueExpression BooleanFactor BooleanTerm BooleanTest BooleanValueExpression
    CeilingFunction ComparisonPredicate CypherChainedComparison ElementIdFunction ExistsPredicate
    FloorFunction InPredicate LabeledPredicate ListPredicateFunction ModulusExpression NullPredicate
    PowerFunction RegexMatchPredicate Round SignFunc Size StringMatchPredicate TypeFunc
    _CountAsterisk
""")
"""The nodes whose value is a number, a truth value or a short text for any operand."""

_SCALAR_AGGREGATES = frozenset({"_Avg", "_Count", "_Sum"})


class _Parts(NamedTuple):
    """The number of parts of a value.

    Attributes:
        whole: The parts of the value.
        each: The parts of its largest element, when the value is a list.
    """

    whole: int
    each: int


_ONE = _Parts(1, 1)
_UNKNOWN = _Parts(_ASSUMED_PARTS, _ASSUMED_PARTS)
_LIST = _Parts(_COLLECTED_PARTS, _ASSUMED_PARTS)


def check_bounds(text: QueryText, tree: Node) -> None:
    """Check that a query builds no value of more than `MAX_PARTS` parts by itself.

    Args:
        tree: The tree of the query.

    Raises:
        UnportableCypherError: The query may build one; its rule is `UNBOUNDED_VALUE`.
    """
    _PartCounter(text).count(tree)


class _PartCounter:
    """Counts the parts of one query's values, in the order of the text.

    A name has the parts of the value that was bound to it last.
    """

    def __init__(self, text: QueryText) -> None:
        self._text = text
        self._bound: dict[str, _Parts] = {}
        self._times = 1  # how often the current node is evaluated for each row

    def count(self, node: Node) -> _Parts:
        """Return the most parts that the value of a node may have."""
        found = self._count_by_kind(node)
        if found.whole > MAX_PARTS:
            problem = (
                f"this may build a value of more than {MAX_PARTS:,} parts; repeat it less often"
            )
            self._refuse(node, problem)
        return found

    def _count_by_kind(self, node: Node) -> _Parts:
        name = kind(node)
        if name in _COUNTERS:
            return _COUNTERS[name](self, node)
        return self._combine(name, [self.count(child) for child in children(node)])

    def _count_variable(self, node: Node) -> _Parts:
        return self._bound.get(_name_in(node), _UNKNOWN)

    def _count_text(self, node: Node) -> _Parts:
        length = max(1, len(str(vars(node)["value"])))
        return _Parts(length, length)

    def _combine(self, name: str, inner: list[_Parts]) -> _Parts:
        """Return the parts of a node from those of its children."""
        if name in _SCALARS or (name == "ArithmeticTerm" and len(inner) > 1):
            return _ONE
        whole = max(1, sum(parts.whole for parts in inner))
        if name == "ListElementList":
            return _Parts(whole, max((parts.whole for parts in inner), default=1))
        if name in _CONTAINERS:
            return _ONE
        if name == "PropertyReference":
            return inner[0]  # at most the parts of its owner
        return _Parts(whole, max((parts.each for parts in inner), default=1))

    def _count_range(self, node: Node) -> _Parts:
        ends = [_whole_number(child) for child in children(node)]
        if len(ends) not in (2, 3) or None in ends:
            self._refuse(node, "a range takes whole numbers as literals only")
        first, last, step = [*(end or 0 for end in ends), 1][:3]
        count = max(0, (last - first) // step + 1) if step else 0
        if count * self._times > MAX_PARTS:
            problem = f"a range has at most {MAX_PARTS:,} numbers, counted over all loops"
            self._refuse(node, problem)
        return _Parts(max(1, count), 1)

    def _count_aggregate(self, node: Node) -> _Parts:
        inner = [self.count(child) for child in children(node)]
        names = {kind(part) for part in walk(node)}
        if names & _SCALAR_AGGREGATES:
            return _ONE
        if "_CollectList" in names:
            return _LIST._replace(each=max(parts.whole for parts in inner))
        return self._combine("", inner)

    def _count_unwind(self, node: Node) -> _Parts:
        alias, source = children(node)
        element = self.count(source).each
        self._bound[_name_in(alias)] = _Parts(element, element)
        return _ONE

    def _count_column(self, node: Node) -> _Parts:
        value, *alias = children(node)
        found = self.count(value)
        for name in alias:
            self._bound[_name_in(name)] = found
        return _ONE

    def _count_loop(self, node: Node) -> _Parts:
        """Return the parts of a loop over a list.

        All elements together have the parts of the list, so each counts as one in the body.
        """
        names = [_name_in(child) for child in children(node) if kind(child) == "Identifier"]
        operands = [child for child in children(node) if kind(child) != "Identifier"]
        before, times = dict(self._bound), self._times
        self._bound |= dict.fromkeys(names, _ONE)
        whole = 1
        for operand in operands:
            whole *= self.count(operand).whole
            self._times = times * whole
            if self._times > MAX_PARTS:
                self._refuse(node, f"this takes more than {MAX_PARTS:,} steps")
        self._bound, self._times = before, times
        if kind(node) == "CypherReduce" and _count_uses(operands[-1], names[0]) > 1:
            self._refuse(node, f"{names[0]!r} may double at each step; use it once")
        return _ONE if kind(node) in _SCALARS else _Parts(whole, whole)

    def _refuse(self, node: Node, problem: str) -> NoReturn:
        places = [*spans(node)]
        start, end = (min(s for s, _ in places), max(e for _, e in places)) if places else (0, 0)
        raise self._text.error(UNBOUNDED_VALUE, problem, start, end)


_COUNTERS: dict[str, Callable[[_PartCounter, Node], _Parts]] = {
    "BindingVariableReference": _PartCounter._count_variable,
    "CharacterStringLiteral": _PartCounter._count_text,
    "CypherReduce": _PartCounter._count_loop,
    "ForItem": _PartCounter._count_unwind,
    "GeneralSetFunction": _PartCounter._count_aggregate,
    "ListComprehension": _PartCounter._count_loop,
    "ListPredicateFunction": _PartCounter._count_loop,
    "RangeFunc": _PartCounter._count_range,
    "ReturnItem": _PartCounter._count_column,
}

_CONTAINERS = _words("""
    AmbientLinearQueryStatement CompositeQueryExpression CypherWithStatement ForStatement GqlProgram
    GraphPattern GraphPatternBindingTable GraphPatternWhereClause NodePattern OptionalMatchStatement
    OrderByAndPageStatement OrderByClause PathPattern PathPatternList PathTerm
    PrimitiveResultStatement ProcedureBody QueryConjunction ReturnItemList ReturnStatement
    ReturnStatementBody SimpleLinearQueryStatement SimpleMatchStatement SortSpecification
    SortSpecificationList StatementBlock TransactionActivity WhereClause
    _OrderByClauseOffsetClauseLimitClause _ProcedureSpecificationEndTransactionCommand
    _ProgramActivitySessionCloseCommand _QueryConjunctionElement
    _ReturnStatementOrderByAndPageStatement _SetQuantifierReturnItemListGroupByClause
    _SimpleLinearQueryStatementPrimitiveResultStatement
""")
"""The nodes that hold clauses and have no value."""


def _name_in(node: Node) -> str:
    """Return the first name in a node, or an empty text."""
    # Databases disagree whether names are case-sensitive.
    names = (str(part.name).casefold() for part in walk(node) if kind(part) == "Identifier")
    return next(names, "")


def _count_uses(node: Node, name: str) -> int:
    """Return how often a node refers to a name."""
    references = (part for part in walk(node) if kind(part) == "BindingVariableReference")
    return sum(_name_in(reference) == name for reference in references)


def _whole_number(node: Node) -> int | None:
    """Return the value of a literal whole number; None for any other node."""
    sign = 1
    while (name := kind(node)) != "UnsignedNumericLiteral":
        inner = list(children(node))
        if name not in _WRAPPERS or len(inner) != 1:
            return None
        if name == "ArithmeticFactor" and node.sign.name == "MINUS_SIGN":
            sign = -sign
        node = inner[0]
    value = vars(node)["value"]
    return sign * value if isinstance(value, int) else None


_WRAPPERS = frozenset({"ArithmeticValueExpression", "ArithmeticTerm", "ArithmeticFactor"})
