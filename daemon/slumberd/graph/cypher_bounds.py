"""Bound the values that a query builds by itself, before a database evaluates the query.

A database computes constants while it plans, where neither its timeout nor its buffer pool counts.
It checks its timeout between rows, and not within one value. So a range of ten thousand million
numbers, or a text that doubles twenty times, ends the process. The bound is a static one: it
counts the parts that every expression may copy, whatever the graph holds.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, NoReturn

from slumberd.graph.cypher_parser import Node, Text, children, kind, place_of, walked


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


MOST_PARTS = 100_000
"""Numbers of a range, and characters or elements of a value, at most."""

UNBOUNDED_VALUE = "unbounded-value"
"""The rule that a query breaks which builds more."""

_OF_THE_GRAPH = 100
"""What a property or an element of the graph counts for: its size is not known."""

_COLLECTED = 50_000
"""What a collected list counts for."""

_SCALARS = _words("""
    AbsoluteValueExpression BooleanFactor BooleanTerm BooleanTest BooleanValueExpression
    CeilingFunction ComparisonPredicate CypherChainedComparison ElementIdFunction ExistsPredicate
    FloorFunction InPredicate LabeledPredicate ListPredicateFunction ModulusExpression NullPredicate
    PowerFunction RegexMatchPredicate Round SignFunc Size StringMatchPredicate TypeFunc
    _CountAsterisk
""")
"""What gives a number, a truth value or a short text, whatever it is given."""

_SCALAR_AGGREGATES = frozenset({"_Avg", "_Count", "_Sum"})


class _Parts(NamedTuple):
    """How many parts a value has.

    Attributes:
        whole: Of the value.
        each: Of its largest element, when the value is a list.
    """

    whole: int
    each: int


_ONE = _Parts(1, 1)
_UNKNOWN = _Parts(_OF_THE_GRAPH, _OF_THE_GRAPH)
_LIST = _Parts(_COLLECTED, _OF_THE_GRAPH)


def check_bounds(text: Text, tree: Node) -> None:
    """Let a query pass that builds no value of more than `MOST_PARTS` parts by itself.

    Args:
        text: The query.
        tree: The tree of the query.

    Raises:
        UnportableCypherError: The query may build one; the rule is `UNBOUNDED_VALUE`.
    """
    _Bounds(text).parts(tree)


class _Bounds:
    """One query being counted, in the order of the text.

    A name counts for what was bound to the name last.
    """

    def __init__(self, text: Text) -> None:
        self._text = text
        self._bound: dict[str, _Parts] = {}
        self._times = 1  # that what is counted now is done for each row

    def parts(self, node: Node) -> _Parts:
        """Return how many parts the value of a node may have."""
        found = self._counted(node)
        if found.whole > MOST_PARTS:
            problem = f"this may build a value of more than {MOST_PARTS:,} parts; repeat it less"
            self._refuse(node, problem)
        return found

    def _counted(self, node: Node) -> _Parts:
        name = kind(node)
        if name in _COUNTERS:
            return _COUNTERS[name](self, node)
        return self._of(name, [self.parts(one) for one in children(node)])

    def _variable(self, node: Node) -> _Parts:
        return self._bound.get(_name_in(node), _UNKNOWN)

    def _text_literal(self, node: Node) -> _Parts:
        length = max(1, len(str(vars(node)["value"])))
        return _Parts(length, length)

    def _of(self, name: str, inner: list[_Parts]) -> _Parts:
        """Return the parts of a node that has nothing special but its name."""
        if name in _SCALARS or (name == "ArithmeticTerm" and len(inner) > 1):
            return _ONE
        whole = max(1, sum(one.whole for one in inner))
        if name == "ListElementList":
            return _Parts(whole, max((one.whole for one in inner), default=1))
        if name in _CONTAINERS:
            return _ONE
        if name == "PropertyReference":
            return inner[0]  # of a part of what it belongs to
        return _Parts(whole, max((one.each for one in inner), default=1))

    def _range(self, node: Node) -> _Parts:
        ends = [_whole_number(one) for one in children(node)]
        if len(ends) not in (2, 3) or None in ends:
            self._refuse(node, "a range takes whole numbers that are written out")
        first, last, step = [*(end or 0 for end in ends), 1][:3]
        count = max(0, (last - first) // step + 1) if step else 0
        if count * self._times > MOST_PARTS:
            problem = f"a range takes at most {MOST_PARTS:,} numbers, those of loops included"
            self._refuse(node, problem)
        return _Parts(max(1, count), 1)

    def _aggregate(self, node: Node) -> _Parts:
        inner = [self.parts(one) for one in children(node)]
        names = {kind(one) for one in walked(node)}
        if names & _SCALAR_AGGREGATES:
            return _ONE
        if "_CollectList" in names:
            return _LIST._replace(each=max(one.whole for one in inner))
        return self._of("", inner)

    def _unwound(self, node: Node) -> _Parts:
        alias, source = children(node)
        element = self.parts(source).each
        self._bound[_name_in(alias)] = _Parts(element, element)
        return _ONE

    def _returned(self, node: Node) -> _Parts:
        value, *alias = children(node)
        found = self.parts(value)
        for one in alias:
            self._bound[_name_in(one)] = found
        return _ONE

    def _loop(self, node: Node) -> _Parts:
        """Return the parts of what is done for each element of a list.

        The elements together have the parts of the list: each counts for one in what is done.
        """
        names = [_name_in(one) for one in children(node) if kind(one) == "Identifier"]
        others = [one for one in children(node) if kind(one) != "Identifier"]
        before, times = dict(self._bound), self._times
        self._bound |= dict.fromkeys(names, _ONE)
        whole = 1
        for one in others:
            whole *= self.parts(one).whole
            self._times = times * whole
            if self._times > MOST_PARTS:
                self._refuse(node, f"this takes more than {MOST_PARTS:,} steps")
        self._bound, self._times = before, times
        if kind(node) == "CypherReduce" and _uses(others[-1], names[0]) > 1:
            self._refuse(node, f"{names[0]!r} may double in each step; use it once")
        return _ONE if kind(node) in _SCALARS else _Parts(whole, whole)

    def _refuse(self, node: Node, problem: str) -> NoReturn:
        places = [place for one in walked(node) if (place := place_of(one)) is not None]
        start, end = (min(s for s, _ in places), max(e for _, e in places)) if places else (0, 0)
        raise self._text.refused(UNBOUNDED_VALUE, problem, start, end)


_COUNTERS: dict[str, Callable[[_Bounds, Node], _Parts]] = {
    "BindingVariableReference": _Bounds._variable,
    "CharacterStringLiteral": _Bounds._text_literal,
    "CypherReduce": _Bounds._loop,
    "ForItem": _Bounds._unwound,
    "GeneralSetFunction": _Bounds._aggregate,
    "ListComprehension": _Bounds._loop,
    "ListPredicateFunction": _Bounds._loop,
    "RangeFunc": _Bounds._range,
    "ReturnItem": _Bounds._returned,
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
"""What holds clauses, and has no value itself."""


def _name_in(node: Node) -> str:
    """Return the first name in a node; empty when there is none."""
    # Databases do not agree whether case counts in names.
    names = (str(one.name).casefold() for one in walked(node) if kind(one) == "Identifier")
    return next(names, "")


def _uses(node: Node, name: str) -> int:
    """Return how often a node refers to a name."""
    references = (one for one in walked(node) if kind(one) == "BindingVariableReference")
    return sum(_name_in(one) == name for one in references)


def _whole_number(node: Node) -> int | None:
    """Return a whole number that is written out; None for anything else."""
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
