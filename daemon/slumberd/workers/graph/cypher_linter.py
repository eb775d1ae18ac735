"""Check that Cypher is portable between graph databases, and that it only reads.

The linter walks the tree of a real parser. It knows the kinds of nodes by lists: it refuses a kind
that is on no list, and treats such a kind as a write.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from slumberd.model.arguments import require_iterable
from slumberd.model.errors import UnportableCypherError
from slumberd.workers.graph.cypher_bounds import check_bounds
from slumberd.workers.graph.cypher_parser import (
    PARSE_ERROR,
    Node,
    QueryText,
    kind,
    parse,
    scan,
    spans,
    walk,
)

WRITE_IN_PROMOTION = "write-in-promotion"
"""The rule that is broken by a query that may write."""


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
"""The kinds of nodes of queries that only read."""

WRITING = _words("""
    AmbientLinearDataModifyingStatementBody CreateClause DeleteItemList DeleteStatement
    InsertEdgePointingLeft InsertEdgePointingRight InsertElementPatternFiller InsertNodePattern
    InsertPathPattern InsertPathPatternList LabelAndPropertySetSpecification LabelSetSpecification
    MergeClause RemoveItemList RemoveLabelItem RemovePropertyItem RemoveStatement
    SetAllPropertiesItem SetItemList SetLabelItem SetPropertyItem SetStatement
    SimpleLinearDataAccessingStatement _ElementVariableDeclarationLabelAndPropertySetSpecification
    _InsertEdgePatternInsertNodePattern _LabelSetSpecificationElementPropertySpecification
""")
"""The kinds of nodes of portable queries that write."""

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
_BEFORE_NAME = re.compile(r"[.:|&!$]\s+$")


class _Finding(NamedTuple):
    """The rule that a node breaks, and why."""

    rule: str
    problem: str


_REFUSED = {
    "CypherPatternComprehension": _Finding(
        "path-comprehension", "lists of paths are not portable; MATCH the pattern instead"
    ),
    "InlineProcedureCall": _Finding(
        "call-subquery", "sub-queries are not portable; write one query"
    ),
    "UseGraphClause": _Finding("graph-selection", "a query cannot select a graph; remove USE"),
    "QueryPrefix": _Finding(
        "query-prefix", "EXPLAIN and PROFILE return a plan, not rows; remove them"
    ),
}
_UNKNOWN = "this syntax is not known to be portable"
_SCHEMA = frozenset({"CreateIndex", "DropIndex", "CreateConstraint", "DropConstraint"})


class Linter:
    """Checks whether queries are portable, and whether they only read.

    Args:
        procedures: The names of procedures that only read, as ``my.reader``; a query may call no
            other procedure.
    """

    def __init__(self, procedures: frozenset[str] = frozenset()) -> None:
        require_iterable("procedures", procedures)
        self._procedures = frozenset(name.lower() for name in procedures)

    def check(self, cypher: str) -> None:
        """Check that a query is portable.

        A check takes some 10 ms, and a few seconds at most.

        Raises:
            UnportableCypherError: The query is not portable. Its `rule` is one of
                ``parse-error``, ``multiple-statements``, ``too-complex``, ``banned-procedure``,
                ``unknown-procedure``, ``unknown-function``, ``varlen-unbounded``, ``yield-star``,
                ``path-comprehension``, ``call-subquery``, ``graph-selection``, ``query-prefix``,
                ``schema-change`` and ``unknown-syntax``.
            ExtraMissingError: The extra ``graph`` is not installed.
        """
        text = scan(cypher)
        if match := _SUBQUERY.search(text.unquoted):
            raise text.error(*_REFUSED["InlineProcedureCall"], *match.span())
        if match := _QUANTIFIER.search(text.unquoted):
            problem = "this form of a repeated edge is not portable; write -[:KIND*1..3]->"
            raise text.error(PARSE_ERROR, problem, *match.span())
        checked = [(self._check_node(node), node) for node in walk(parse(text))]
        findings = [(finding, node) for finding, node in checked if finding is not None]
        # A rule that refuses a kind of node explains more than a rule for unknown kinds.
        for finding, node in sorted(findings, key=lambda pair: pair[0].rule.startswith("unknown")):
            raise _error(text, node, finding)

    def requires_write(self, cypher: str) -> bool:
        """Return whether a query writes, or holds anything that is not known to only read.

        Raises:
            UnportableCypherError: The query cannot be parsed.
            ExtraMissingError: The extra ``graph`` is not installed.
        """
        text = scan(cypher)
        tree = parse(text)
        if any(_is_keyword(text, match) for match in _MUTATING.finditer(text.unquoted)):
            return True
        return any(not self._only_reads(node) for node in walk(tree))

    def check_reading(self, cypher: str) -> None:
        """Check that a query is portable, only reads, and builds no huge value by itself.

        Raises:
            UnportableCypherError: As for `check`; or `rule` is ``write-in-promotion`` or
                ``unbounded-value``.
            ExtraMissingError: The extra ``graph`` is not installed.
        """
        self.check(cypher)
        text = scan(cypher)
        if not self.requires_write(cypher):
            check_bounds(text, parse(text))
            return
        problem = "only queries that read are accepted; put a keyword as a name in backticks"
        words = _MUTATING.finditer(text.unquoted)
        for keyword in (word for word in words if _is_keyword(text, word)):
            raise text.error(WRITE_IN_PROMOTION, problem, *keyword.span())
        raise UnportableCypherError(cypher, WRITE_IN_PROMOTION, problem)

    def _only_reads(self, node: Node) -> bool:
        name = kind(node)
        if name in ("NamedProcedureCall", "CallProcedureStatement", *_YIELDING):
            return all(self._is_known(part) for part in walk(node) if kind(part) == _CALL)
        if name == "Anonymous":
            return _check_function(str(node.name)) is None
        if name in _CALLED:
            return True  # a part of a call, which is checked as a node of its own
        return name in READING

    def _is_known(self, call: Node) -> bool:
        return _procedure(call).lower() in self._procedures

    def _check_node(self, node: Node) -> _Finding | None:
        name = kind(node)
        match name:
            case "NamedProcedureCall":
                return self._check_call(node)
            case "Anonymous":
                return _check_function(str(node.name))
            case "QuantifiedPathPrimary" if _is_unbounded(node.graph_pattern_quantifier):
                problem = "a path without an upper bound may be endless; write *1..3"
                return _Finding("varlen-unbounded", problem)
            case "YieldClause" if not node.yield_item_list.list_yield_item:
                return _Finding("yield-star", "name the columns that are yielded")
        if name in _SCHEMA:
            return _Finding("schema-change", "statements that change the schema are not portable")
        if name in _REFUSED:
            return _REFUSED[name]
        known = name in READING or name in WRITING or name in (_CALL, *_YIELDING, *_CALLED)
        return None if known else _Finding("unknown-syntax", _UNKNOWN)

    def _check_call(self, call: Node) -> _Finding | None:
        name = _procedure(call)
        if name.split(".")[0].lower() in _VENDORS:
            return _Finding("banned-procedure", f"{name!r} is a procedure of one database only")
        if self._is_known(call):
            return None
        return _Finding("unknown-procedure", f"{name!r} is not known to only read")


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


def _is_keyword(text: QueryText, word: re.Match[str]) -> bool:
    """Return whether a word is a keyword: it is not where the name of a label or property is."""
    return _BEFORE_NAME.search(text.unquoted[: word.start()]) is None


def _is_unbounded(quantifier: Node) -> bool:
    return kind(quantifier) == "GeneralQuantifier" and quantifier.upper_bound is None


def _procedure(call: Node) -> str:
    reference = call.procedure_reference
    parent = getattr(reference, "catalog_object_parent_reference", None)
    parts = parent.catalog_object_parent_reference if parent is not None else []
    return ".".join(str(part.name) for part in [*parts, reference.procedure_name])


def _check_function(name: str) -> _Finding | None:
    if name.split(".")[0].lower() in _VENDORS and "." in name:
        return _Finding("banned-procedure", f"{name!r} is a function of one database only")
    if name.lower() in _NAMED_FUNCTIONS:
        return None
    return _Finding("unknown-function", f"{name!r} is not known to be portable and to only read")


def _error(text: QueryText, node: Node, finding: _Finding) -> UnportableCypherError:
    # The parser gives some nodes no position; then the first part with one is named.
    span = next(spans(node), None)
    if span is None:
        return UnportableCypherError(text.cypher, *finding)
    return text.error(*finding, *span)
