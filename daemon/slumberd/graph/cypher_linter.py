"""The linter of Cypher: what every graph database understands alike, and what only reads.

It goes by lists of what is known, on the tree of a real parser: what it does not know, it refuses,
and takes for a write. The names on the lists are those of the parser's nodes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from slumberd.errors import UnportableCypherError
from slumberd.graph.cypher_bounds import check_bounds
from slumberd.graph.cypher_parser import (
    PARSE_ERROR,
    Node,
    Text,
    kind,
    parsed,
    place_of,
    text_of,
    walked,
)

WRITE_IN_PROMOTION = "write-in-promotion"
"""The rule that a query breaks which writes, or may, where it must only read."""


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_FRAME = """
    AmbientLinearQueryStatement CompositeQueryExpression GqlProgram PrimitiveResultStatement
    ProcedureBody QueryConjunction ReturnStatement ReturnStatementBody SetOperator
    SimpleLinearQueryStatement StatementBlock TransactionActivity
    _ProcedureSpecificationEndTransactionCommand _ProgramActivitySessionCloseCommand
    _QueryConjunctionElement _ReturnStatementOrderByAndPageStatement
    _SetQuantifierAsteriskGroupByClause _SetQuantifierReturnItemListGroupByClause
    _SimpleLinearQueryStatementPrimitiveResultStatement
"""

_CLAUSES = """
    Asterisk CypherWithStatement ForItem ForItemAlias ForStatement GraphPatternWhereClause
    LimitClause OffsetClause OptionalMatchStatement OptionalOperand OrderByAndPageStatement
    OrderByClause OrderingSpecification ReturnItem ReturnItemAlias ReturnItemList SetQuantifier
    SimpleMatchStatement SortSpecification SortSpecificationList WhereClause
    _OffsetClauseLimitClause _OrderByClauseOffsetClauseLimitClause
"""

_PATTERNS = """
    AbbreviatedEdgePattern BindingVariableReferenceList ElementPatternFiller
    ElementPatternWhereClause ElementPropertySpecification ElementVariableDeclaration
    FixedQuantifier FullEdgeAnyDirection FullEdgePointingLeft FullEdgePointingRight
    GeneralQuantifier GraphPattern GraphPatternBindingTable IsLabelExpression LabelExpression
    LabelName LabelNegation LabelTerm NodePattern PathPattern PathPatternList PathTerm
    PathVariableDeclaration PropertyKeyValuePair PropertyKeyValuePairList QuantifiedPathPrimary
    UnsignedInteger
"""

_CONDITIONS = """
    BooleanFactor BooleanTerm BooleanTest BooleanValueExpression ComparisonPredicate
    ComparisonPredicatePart2 CypherChainedComparison CypherPatternPredicate ExistsPredicate
    InPredicate IsLabeledOrColon LabeledPredicate LabeledPredicatePart2 ListPredicateFunction
    MatchStatementBlock NestedQuerySpecification NullPredicate NullPredicatePart2
    ParenthesizedBooleanValueExpression RegexMatchPredicate StringMatchPredicate _Colon
    _ExistsGraphPattern _ExistsMatchStatementBlock _OpBooleanTerm
"""

_VALUES = """
    ArithmeticFactor ArithmeticTerm ArithmeticValueExpression BindingVariableReference
    BooleanLiteral CaseAbbreviation CharacterStringLiteral CharacterStringValueExpression
    ConcatenationValueExpression CypherReduce CypherSliceExpression CypherSubscriptExpression
    ElseClause Factor Field FieldList FieldsSpecification GeneralParameterReference
    GeneralValueSpecification Identifier ListComprehension ListElementList
    ListValueConstructorByEnumeration ListValueExpression NullLiteral NumericValueExpression
    ParenthesizedValueExpression PropertyName PropertyReference RecordConstructor SearchedCase
    SearchedWhenClause SimpleCase SimpleWhenClause Term UnsignedNumericLiteral WhenOperandList
    _CoalesceLeftParenListValueExpressionRightParen _MultiplicativeFactor _SignedTerm
"""

_FUNCTIONS = """
    AbsoluteValueExpression AggregateFunction Anonymous CeilingFunction DateFunction
    DatetimeFunction DatetimeValueExpression ElementIdFunction EndNode FloorFunction
    GeneralSetFunction GeneralSetFunctionType Head Keys Labels Last ModulusExpression
    MultiCharacterTrimFunction Nodes PathLengthExpression PathValueExpression PowerFunction
    Properties RangeFunc Relationships Replace ReverseFunc Round SignFunc
    SingleCharacterTrimFunction Size Split SquareRoot StartNode Substring SubstringFunction Tail
    TimestampFunc ToLower ToString ToUpper TrimOperands TypeFunc _Avg _CollectList _Count
    _CountAsterisk
    _DateLeftParenDateFunctionParametersRightParen _Max _Min _Sum
    _ZonedDatetimeLeftParenDatetimeFunctionParametersRightParen
"""

READING = _words(_FRAME + _CLAUSES + _PATTERNS + _CONDITIONS + _VALUES + _FUNCTIONS)
"""The nodes of queries that only read."""

WRITING = _words("""
    AmbientLinearDataModifyingStatementBody CreateClause DeleteItemList DeleteStatement
    InsertEdgePointingLeft InsertEdgePointingRight InsertElementPatternFiller InsertNodePattern
    InsertPathPattern InsertPathPatternList LabelAndPropertySetSpecification LabelSetSpecification
    MergeClause RemoveItemList RemoveLabelItem RemovePropertyItem RemoveStatement
    SetAllPropertiesItem SetItemList SetLabelItem SetPropertyItem SetStatement
    SimpleLinearDataAccessingStatement _ElementVariableDeclarationLabelAndPropertySetSpecification
    _InsertEdgePatternInsertNodePattern _LabelSetSpecificationElementPropertySpecification
""")
"""The nodes of those that write, and are portable still."""

_NAMED_FUNCTIONS = _words("""
    abs ceil ceiling coalesce elementid endnode exists floor head id keys labels last left length
    lower ltrim nodes properties range relationships replace reverse right round rtrim sign size
    split startnode substring tail toboolean tofloat tointeger tolower tostring toupper trim type
    upper
""")
_VENDORS = frozenset({"apoc", "gds", "db", "dbms"})

_MUTATING = re.compile(
    r"(?<![.:|&!$\w])(?:alter|attach|begin|call|checkpoint|comment|commit|copy|create|delete|deny|"
    r"detach|drop|enable|export|force|foreach|grant|import|insert|install|load|merge|project|"
    r"remove|rename|revoke|rollback|set|start|stop|terminate|transaction|uninstall|update|use)\b",
    re.IGNORECASE,
)
_SUBQUERY = re.compile(r"\b(?:call|collect|count|value)\s*\{", re.IGNORECASE)
_QUANTIFIER = re.compile(r"[>)\-]\s*(?:\{[\s\d,]*\}|\+(?=\s*\())")
_SINCE_NAMES = re.compile(r"[.:|&!$]\s+$")


class _Finding(NamedTuple):
    """What is wrong with a node."""

    rule: str
    problem: str


_REFUSED = {
    "CypherPatternComprehension": _Finding(
        "path-comprehension", "lists of paths are not portable; MATCH the pattern instead"
    ),
    "InlineProcedureCall": _Finding(
        "call-subquery", "sub-queries are not portable; write one query"
    ),
    "UseGraphClause": _Finding("graph-selection", "the graph is the one that is configured"),
    "QueryPrefix": _Finding("query-prefix", "EXPLAIN and PROFILE ask for a plan, not for rows"),
}
_UNKNOWN = "it is not known that every graph database takes this"
_SCHEMA = frozenset({"CreateIndex", "DropIndex", "CreateConstraint", "DropConstraint"})


class Linter:
    """Says of Cypher what is portable, and what only reads.

    Args:
        procedures: Names of procedures, as ``my.reader``, that are known to read only; no other
            may be called.
    """

    def __init__(self, procedures: frozenset[str] = frozenset()) -> None:
        self._procedures = frozenset(name.lower() for name in procedures)

    def check(self, cypher: str) -> None:
        """Let a query pass, or refuse it at the first thing that is not portable.

        It takes some 10 ms, and a few seconds at most.

        Raises:
            UnportableCypherError: Its `rule` is one of ``parse-error``, ``multiple-statements``,
                ``too-complex``, ``banned-procedure``, ``unknown-procedure``, ``unknown-function``,
                ``varlen-unbounded``, ``yield-star``, ``path-comprehension``, ``call-subquery``,
                ``graph-selection``, ``query-prefix``, ``schema-change`` and ``unknown-syntax``.
            ExtraMissingError: The extra ``graph`` is not installed.
        """
        text = text_of(cypher)
        if found := _SUBQUERY.search(text.bare):
            raise text.refused(*_REFUSED["InlineProcedureCall"], *found.span())
        if found := _QUANTIFIER.search(text.bare):
            problem = "this form of a repeated edge is not portable; write -[:KIND*1..3]->"
            raise text.refused(PARSE_ERROR, problem, *found.span())
        found_in = [(self._finding(node), node) for node in walked(parsed(text))]
        findings = [(finding, node) for finding, node in found_in if finding is not None]
        # What is known to be refused tells more than that something is not known.
        for finding, node in sorted(findings, key=lambda one: one[0].rule.startswith("unknown")):
            raise _error(text, node, finding)

    def requires_write(self, cypher: str) -> bool:
        """Say whether a query writes, or does what is not known to read only.

        Raises:
            UnportableCypherError: It cannot be read at all.
            ExtraMissingError: The extra ``graph`` is not installed.
        """
        text = text_of(cypher)
        tree = parsed(text)
        if any(_is_mutating(text, found) for found in _MUTATING.finditer(text.bare)):
            return True
        return any(not self._only_reads(node) for node in walked(tree))

    def check_reading(self, cypher: str) -> None:
        """Let a portable query that only reads pass, unless it may build a huge value by itself.

        Raises:
            UnportableCypherError: As `check`; or its rule is ``write-in-promotion`` or
                ``unbounded-value``.
            ExtraMissingError: The extra ``graph`` is not installed.
        """
        self.check(cypher)
        if not self.requires_write(cypher):
            text = text_of(cypher)
            check_bounds(text, parsed(text))
            return
        problem = (
            "only what reads is taken: MATCH ... RETURN; a keyword as a name goes in backticks"
        )
        text = text_of(cypher)
        words = _MUTATING.finditer(text.bare)
        for found in (one for one in words if _is_mutating(text, one)):
            raise text.refused(WRITE_IN_PROMOTION, problem, *found.span())
        raise UnportableCypherError(cypher, WRITE_IN_PROMOTION, problem)

    def _only_reads(self, node: Node) -> bool:
        name = kind(node)
        if name in ("NamedProcedureCall", "CallProcedureStatement", *_YIELDING):
            return all(self._is_known(one) for one in walked(node) if kind(one) == _CALL)
        if name == "Anonymous":
            return _finding_in_function(str(node.name)) is None
        if name in _CALLED:
            return True  # parts of a call, which is looked at itself
        return name in READING

    def _is_known(self, call: Node) -> bool:
        return _procedure(call).lower() in self._procedures

    def _finding(self, node: Node) -> _Finding | None:
        name = kind(node)
        match name:
            case "NamedProcedureCall":
                return self._finding_in_call(node)
            case "Anonymous":
                return _finding_in_function(str(node.name))
            case "QuantifiedPathPrimary" if _is_unbounded(node.graph_pattern_quantifier):
                problem = "a path without an upper bound may go on for ever; write *1..3"
                return _Finding("varlen-unbounded", problem)
            case "YieldClause" if not node.yield_item_list.list_yield_item:
                return _Finding("yield-star", "name the columns that are yielded")
        if name in _SCHEMA:
            return _Finding("schema-change", "what changes the schema is not portable")
        if name in _REFUSED:
            return _REFUSED[name]
        known = name in READING or name in WRITING or name in (_CALL, *_YIELDING, *_CALLED)
        return None if known else _Finding("unknown-syntax", _UNKNOWN)

    def _finding_in_call(self, call: Node) -> _Finding | None:
        name = _procedure(call)
        if name.split(".")[0].lower() in _VENDORS:
            return _Finding("banned-procedure", f"{name!r} is one database's own procedure")
        if self._is_known(call):
            return None
        return _Finding("unknown-procedure", f"{name!r} is not known to read only")


_CALL = "NamedProcedureCall"
_YIELDING = (
    "CallProcedureStatement",
    "YieldClause",
    "YieldItem",
    "YieldItemList",
    "YieldItemAlias",
)
_CALLED = (
    "CatalogObjectParentReference", "CatalogProcedureParentAndName",
    "LinearCatalogModifyingStatement", "ProcedureArgumentList",
)  # fmt: skip


def _is_mutating(text: Text, found: re.Match[str]) -> bool:
    """Say whether a keyword stands where one may: not after what a name follows."""
    return _SINCE_NAMES.search(text.bare[: found.start()]) is None


def _is_unbounded(quantifier: Node) -> bool:
    return kind(quantifier) == "GeneralQuantifier" and quantifier.upper_bound is None


def _procedure(call: Node) -> str:
    reference = call.procedure_reference
    parent = getattr(reference, "catalog_object_parent_reference", None)
    parts = parent.catalog_object_parent_reference if parent is not None else []
    return ".".join(str(part.name) for part in [*parts, reference.procedure_name])


def _finding_in_function(name: str) -> _Finding | None:
    if name.split(".")[0].lower() in _VENDORS and "." in name:
        return _Finding("banned-procedure", f"{name!r} is one database's own function")
    if name.lower() in _NAMED_FUNCTIONS:
        return None
    return _Finding("unknown-function", f"{name!r} is not known to be portable, nor to read only")


def _error(text: Text, node: Node, finding: _Finding) -> UnportableCypherError:
    found = next(_places_in(node), None)
    if found is None:
        return UnportableCypherError(text.cypher, *finding)
    return text.refused(*finding, *found)


def _places_in(node: Node) -> Iterator[tuple[int, int]]:
    """Yield where a node stands, or a part of it: not every node of the tree has a place."""
    return (place for one in walked(node) if (place := place_of(one)) is not None)
