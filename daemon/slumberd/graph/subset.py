"""Read the subset of Cypher that can be answered in memory; what is not of it is refused.

One ``MATCH`` or several, each of paths of edges that are all different, as openCypher has it; then
``RETURN``, which may be ``DISTINCT``, ordered, skipped and limited. Labels, kinds of edges and
their alternatives, properties in braces. Conditions: ``AND OR XOR NOT``, comparisons, ``IN`` lists,
``IS NULL``, ``STARTS WITH``, ``ENDS WITH``, ``CONTAINS``, labels. Values: literals, parameters,
variables, their properties, ``coalesce``, ``toLower``, ``toUpper``. Unknown is null, as in Cypher.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from typing import Any, NamedTuple

from slumberd.errors import UnportableCypherError
from slumberd.graph.cypher_parser import Node as Syntax
from slumberd.graph.cypher_parser import Text, kind, parsed, place_of, text_of, walked
from slumberd.graph.values import (
    Row,
    Value,
    all_of,
    any_of,
    comparing,
    is_in,
    odd_of,
    opposite,
    truth,
)

NOT_EVALUATED = "not-evaluated"
"""The rule that a query breaks which this cannot answer."""


class Element(NamedTuple):
    """A node or an edge of a pattern; for edges, which way they lead: ``>``, ``<`` or ``-``."""

    variable: str
    labels: Callable[[str], bool]
    properties: Sequence[tuple[str, Value]]
    way: str = ""


class Item(NamedTuple):
    """A column."""

    name: str
    value: Value


class Query(NamedTuple):
    """A query that can be answered."""

    matches: list[tuple[list[list[Element]], Value | None]]
    items: list[Item]
    distinct: bool
    order: list[tuple[Value, bool]]
    skip: Value | None
    limit: Value | None


def query_of(cypher: str, parameters: Mapping[str, Any]) -> Query:
    """Return a query that can be answered.

    Args:
        cypher: The query.
        parameters: What ``$name`` stands for.

    Raises:
        UnportableCypherError: It is not of the subset.
        ExtraMissingError: The extra ``graph`` is not installed.
    """
    text = text_of(cypher)
    return _Reading(text, parameters).query(parsed(text))


class _Reading:
    """Reads the tree of a query; whatever of it is not looked at must be absent."""

    def __init__(self, text: Text, parameters: Mapping[str, Any]) -> None:
        self._text = text
        self._parameters = parameters
        self._variables: dict[str, str] = {}

    def refused(self, node: Syntax, problem: str = "") -> UnportableCypherError:
        """Return the error for what is not of the subset."""
        said = problem or "a graph in memory cannot answer this part of the query"
        places = (place for one in walked(node) if (place := place_of(one)) is not None)
        place = next(places, None)
        if place is None:
            return UnportableCypherError(self._text.cypher, NOT_EVALUATED, said)
        return self._text.refused(NOT_EVALUATED, said, *place)

    def parts(self, node: Syntax, name: str, *fields: str) -> list[Any]:
        """Return fields of a node of a kind; all others must be empty."""
        if kind(node) != name:
            raise self.refused(node)
        for key, value in vars(node).items():
            if not key.startswith("_") and key not in fields and value not in (None, False, []):
                raise self.refused(node)
        return [getattr(node, one) for one in fields]

    def part(self, node: Syntax, name: str, field: str) -> Syntax:
        """Return the one field of a node of a kind."""
        return self.parts(node, name, field)[0]

    def down(self, node: Syntax, *path: str) -> Syntax:
        """Go down through nodes of one field each, as ``Kind.field``."""
        for step in path:
            node = self.part(node, *step.split("."))
        return node

    def query(self, tree: Syntax) -> Query:
        linear = self.down(
            tree,
            "GqlProgram.gql_program",
            "_ProgramActivitySessionCloseCommand.program_activity",
            "TransactionActivity.transaction_activity",
            "_ProcedureSpecificationEndTransactionCommand.procedure_specification",
            "ProcedureBody.statement_block",
            "StatementBlock.statement",
            "CompositeQueryExpression.left_composite_query_primary",
            "AmbientLinearQueryStatement.ambient_linear_query_statement",
        )
        simple, result = self.parts(
            linear,
            "_SimpleLinearQueryStatementPrimitiveResultStatement",
            "simple_linear_query_statement",
            "primitive_result_statement",
        )
        statements = self.part(simple, "SimpleLinearQueryStatement", "list_simple_query_statement")
        matches = [self._match(one) for one in statements]
        returned = self.part(result, "PrimitiveResultStatement", "primitive_result_statement")
        return self._result(returned, matches)

    def _match(self, statement: Syntax) -> tuple[list[list[Element]], Value | None]:
        pattern = self.down(
            statement,
            "SimpleMatchStatement.graph_pattern_binding_table",
            "GraphPatternBindingTable.graph_pattern",
        )
        paths, where = self.parts(
            pattern, "GraphPattern", "path_pattern_list", "graph_pattern_where_clause"
        )
        found = [
            self._path(one) for one in self.part(paths, "PathPatternList", "list_path_pattern")
        ]
        if where is None:
            return found, None
        return found, self.value(self.part(where, "GraphPatternWhereClause", "search_condition"))

    def _path(self, path: Syntax) -> list[Element]:
        factors = self.down(path, "PathPattern.path_pattern_expression", "PathTerm.factors")
        return [self._element(one) for one in factors]

    def _element(self, node: Syntax) -> Element:
        if kind(node) == "NodePattern":
            return self._filled(self.part(node, "NodePattern", "element_pattern_filler"), "")
        if kind(node) == "AbbreviatedEdgePattern":
            pattern = self.part(node, "AbbreviatedEdgePattern", "pattern").name
            if pattern not in _ABBREVIATED:
                raise self.refused(node)
            return Element("", _any_label, [], _ABBREVIATED[pattern])
        if kind(node) not in _WAYS:
            raise self.refused(node)
        filler = self.part(node, kind(node), "element_pattern_filler")
        return self._filled(filler, _WAYS[kind(node)])

    def _filled(self, filler: Syntax, way: str) -> Element:
        declared, labels, predicate = self.parts(
            filler,
            "ElementPatternFiller",
            "element_variable_declaration",
            "is_label_expression",
            "element_pattern_predicate",
        )
        name = ""
        if declared is not None:
            name = self._name(self.part(declared, "ElementVariableDeclaration", "element_variable"))
            sort = "edge" if way else "node"
            if self._variables.setdefault(name, sort) != sort or (way and self._seen(name)):
                raise self.refused(filler, f"{name!r} stands for two things")
        accepts = _any_label if labels is None else self._labels(labels)
        return Element(name, accepts, self._properties(predicate), way)

    def _seen(self, edge: str) -> bool:
        again = f"{edge} again"
        if again in self._variables:
            return True
        self._variables[again] = "edge"
        return False

    def _name(self, identifier: Syntax) -> str:
        return str(self.part(identifier, "Identifier", "name"))

    def _labels(self, node: Syntax) -> Callable[[str], bool]:
        expression = self.part(node, "IsLabelExpression", "label_expression")
        return self._label_expression(expression)

    def _label_expression(self, expression: Syntax) -> Callable[[str], bool]:
        terms = self.part(expression, "LabelExpression", "label_terms")
        known = [
            [
                self._name(self.part(factor, "LabelName", "identifier"))
                for factor in self.part(term, "LabelTerm", "label_factors")
            ]
            for term in terms
        ]
        return lambda label: any(all(label == one for one in names) for names in known)

    def _properties(self, predicate: Syntax | None) -> list[tuple[str, Value]]:
        if predicate is None:
            return []
        pairs = self.down(
            predicate,
            "ElementPropertySpecification.property_key_value_pair_list",
            "PropertyKeyValuePairList.list_property_key_value_pair",
        )
        return [self._pair(pair) for pair in pairs]

    def _pair(self, pair: Syntax) -> tuple[str, Value]:
        name, value = self.parts(pair, "PropertyKeyValuePair", "property_name", "value_expression")
        return self._name(self.part(name, "PropertyName", "identifier")), self.value(value)

    def _result(
        self, node: Syntax, matches: list[tuple[list[list[Element]], Value | None]]
    ) -> Query:
        statement, page = self.parts(
            node,
            "_ReturnStatementOrderByAndPageStatement",
            "return_statement",
            "order_by_and_page_statement",
        )
        body = self.down(
            statement,
            "ReturnStatement.return_statement_body",
            "ReturnStatementBody.return_statement_body",
        )
        quantifier, listed = self.parts(
            body, "_SetQuantifierReturnItemListGroupByClause", "set_quantifier", "return_item_list"
        )
        distinct = quantifier is not None and quantifier.set_quantifier.name == "DISTINCT"
        items = [self._item(one) for one in self.part(listed, "ReturnItemList", "list_return_item")]
        if len({item.name for item in items}) != len(items):
            raise self.refused(listed, "two columns have one name")
        order, skip, limit = self._page(page, items, distinct=distinct)
        return Query(matches, items, distinct, order, skip, limit)

    def _item(self, item: Syntax) -> Item:
        value, alias = self.parts(
            item, "ReturnItem", "aggregating_value_expression", "return_item_alias"
        )
        if alias is not None:
            name = self._name(self.part(alias, "ReturnItemAlias", "identifier"))
        else:
            place = place_of(item)
            if place is None:
                raise self.refused(item, "give the column a name with AS")
            name = self._text.cypher[slice(*place)].strip()
        return Item(name, self.value(value))

    def _page(
        self, page: Syntax | None, items: Sequence[Item], *, distinct: bool
    ) -> tuple[list[tuple[Value, bool]], Value | None, Value | None]:
        if page is None:
            return [], None, None
        inner = self.part(page, "OrderByAndPageStatement", "order_by_and_page_statement")
        limits = "offset_clause", "limit_clause"
        by = None
        if kind(inner) == "_OffsetClauseLimitClause":
            offset, limit = self.parts(inner, "_OffsetClauseLimitClause", *limits)
        else:
            name = "_OrderByClauseOffsetClauseLimitClause"
            by, offset, limit = self.parts(inner, name, "order_by_clause", *limits)
        order = [] if by is None else self._order(by, items, distinct=distinct)
        number = "non_negative_integer_specification"
        skip = None if offset is None else self.value(self.part(offset, "OffsetClause", number))
        most = None if limit is None else self.value(self.part(limit, "LimitClause", number))
        return order, skip, most

    def _order(
        self, clause: Syntax, items: Sequence[Item], *, distinct: bool
    ) -> list[tuple[Value, bool]]:
        sorts = self.down(
            clause,
            "OrderByClause.sort_specification_list",
            "SortSpecificationList.list_sort_specification",
        )
        columns = {item.name: item.value for item in items}
        found = []
        for sort in sorts:
            key, ordering = self.parts(
                sort, "SortSpecification", "sort_key", "ordering_specification"
            )
            descending = ordering is not None and ordering.ordering_specification.name == "DESC"
            found.append((self._sort_key(key, columns, distinct=distinct), descending))
        return found

    def _sort_key(self, key: Syntax, columns: Mapping[str, Value], *, distinct: bool) -> Value:
        bare = self._bare(key)
        if kind(bare) == "BindingVariableReference":
            name = self._name(self.part(bare, "BindingVariableReference", "binding_variable"))
            if name in columns:
                return columns[name]
        if distinct:
            raise self.refused(key, "distinct rows are ordered by the names of their columns")
        return self.value(key)

    def value(self, node: Syntax) -> Value:
        """Return what gives the value of an expression."""
        node = self._bare(node)
        read = _READERS.get(kind(node))
        if read is None:
            raise self.refused(node)
        return read(self, node)

    def _bare(self, node: Syntax) -> Syntax:
        """Go down through nodes that only wrap another one."""
        while True:
            match kind(node):
                case "BooleanValueExpression" if not node.ops:
                    node = self.part(node, "BooleanValueExpression", "boolean_term")
                case "BooleanTerm" if len(node.list_boolean_factor) == 1:
                    node = self.part(node, "BooleanTerm", "list_boolean_factor")[0]
                case "BooleanFactor" if not node.not_:
                    node = self.part(node, "BooleanFactor", "boolean_test")
                case name if name in _WRAPPERS:
                    node = self.part(node, name, _WRAPPERS[name])
                case "ArithmeticFactor" if node.sign.name == "PLUS_SIGN":
                    node = self.parts(node, "ArithmeticFactor", "arithmetic_primary", "sign")[0]
                case name if name in _LISTS and len(getattr(node, _LISTS[name])) == 1:
                    node = self.part(node, name, _LISTS[name])[0]
                case _:
                    return node

    def _boolean_value_expression(self, node: Syntax) -> Value:
        first, ops = self.parts(node, "BooleanValueExpression", "boolean_term", "ops")
        names = {op.operator.name for op in ops}
        if len(names) > 1:
            raise self.refused(
                node, "OR and XOR stand side by side; say which first, in parentheses"
            )
        others = [self.parts(op, "_OpBooleanTerm", "boolean_term", "operator")[0] for op in ops]
        values = [self.value(one) for one in (first, *others)]
        combine = any_of if names == {"OR"} else odd_of
        return lambda row: combine([truth(value(row)) for value in values])

    def _boolean_term(self, node: Syntax) -> Value:
        values = [self.value(one) for one in self.part(node, "BooleanTerm", "list_boolean_factor")]
        return lambda row: all_of([truth(value(row)) for value in values])

    def _boolean_factor(self, node: Syntax) -> Value:
        value = self.value(self.parts(node, "BooleanFactor", "boolean_test", "not_")[0])
        return lambda row: opposite(truth(value(row)))

    def _comparison_predicate(self, node: Syntax) -> Value:
        one, second = self.parts(
            node, "ComparisonPredicate", "comparison_predicand", "comparison_predicate_part_2"
        )
        operator, other = self.parts(
            second, "ComparisonPredicatePart2", "comp_op", "comparison_predicand"
        )
        return comparing(operator.name, self.value(one), self.value(other))

    def _in_predicate(self, node: Syntax) -> Value:
        one, listed = self.parts(node, "InPredicate", "value", "list_expression")
        inner = self._bare(listed)
        # The parser takes all that follows IN for the list: AND and OR, too.
        if kind(inner) not in ("ListValueConstructorByEnumeration", "GeneralValueSpecification"):
            raise self.refused(node, "put 'x IN [...]' in parentheses, or at the end")
        value, members = self.value(one), self.value(inner)
        return lambda row: is_in(value(row), members(row))

    def _null_predicate(self, node: Syntax) -> Value:
        one, second = self.parts(
            node, "NullPredicate", "value_expression_primary", "null_predicate_part_2"
        )
        wanted = not self.part(second, "NullPredicatePart2", "not_")
        value = self.value(one)
        return lambda row: (value(row) is None) is wanted

    def _string_match_predicate(self, node: Syntax) -> Value:
        left, how, right = self.parts(node, "StringMatchPredicate", "lhs", "kind", "rhs")
        if how.name not in _MATCHES:
            raise self.refused(node)
        match, one, other = _MATCHES[how.name], self.value(left), self.value(right)

        def matches(row: Row) -> bool | None:
            text, part = one(row), other(row)
            both = isinstance(text, str) and isinstance(part, str)
            return match(text, part) if both else None

        return matches

    def _labeled_predicate(self, node: Syntax) -> Value:
        variable, second = self.parts(
            node, "LabeledPredicate", "element_variable_reference", "labeled_predicate_part_2"
        )
        expression = self.parts(
            second, "LabeledPredicatePart2", "label_expression", "is_labeled_or_colon"
        )[0]
        element, accepts = self.value(variable), self._label_expression(expression)
        return lambda row: accepts(element(row).label)

    def _binding_variable_reference(self, node: Syntax) -> Value:
        name = self._name(self.part(node, "BindingVariableReference", "binding_variable"))
        if name not in self._variables:
            raise self.refused(node, f"no variable {name!r} is matched before this")
        return lambda row: row[name]

    def _property_reference(self, node: Syntax) -> Value:
        source, names = self.parts(node, "PropertyReference", "property_source", "property_name")
        if len(names) != 1 or kind(source) != "BindingVariableReference":
            raise self.refused(node)
        name = self._name(self.part(names[0], "PropertyName", "identifier"))
        element = self.value(source)
        return lambda row: element(row).properties.get(name)

    def _general_value_specification(self, node: Syntax) -> Value:
        reference = self.part(node, "GeneralValueSpecification", "general_value_specification")
        name = self._name(self.part(reference, "GeneralParameterReference", "parameter_name"))
        if name not in self._parameters:
            raise self.refused(node, f"no parameter {name!r} is given")
        value = self._parameters[name]
        return lambda _: value

    def _list_value_constructor_by_enumeration(self, node: Syntax) -> Value:
        listed = self.part(node, "ListValueConstructorByEnumeration", "list_element_list")
        parts = [] if listed is None else self.part(listed, "ListElementList", "list_list_element")
        values = [self.value(one) for one in parts]
        return lambda row: [value(row) for value in values]

    def _character_string_literal(self, node: Syntax) -> Value:
        return self._constant(vars(node)["value"])

    def _boolean_literal(self, node: Syntax) -> Value:
        return self._constant(vars(node)["value"])

    def _null_literal(self, _: Syntax) -> Value:
        return self._constant(None)

    def _unsigned_numeric_literal(self, node: Syntax) -> Value:
        value = vars(node)["value"]
        return self._constant(float(value) if isinstance(value, Decimal) else value)

    def _arithmetic_factor(self, node: Syntax) -> Value:
        inner = self._bare(self.parts(node, "ArithmeticFactor", "arithmetic_primary", "sign")[0])
        if kind(inner) != "UnsignedNumericLiteral":
            raise self.refused(node)
        number = self._unsigned_numeric_literal(inner)({})
        return self._constant(-number)

    @staticmethod
    def _constant(value: object) -> Value:
        return lambda _: value

    def _case_abbreviation(self, node: Syntax) -> Value:
        inner = self.part(node, "CaseAbbreviation", "case_abbreviation")
        name = "_CoalesceLeftParenListValueExpressionRightParen"
        values = [self.value(one) for one in self.part(inner, name, "list_value_expression")]
        return lambda row: next((one for v in values if (one := v(row)) is not None), None)

    def _to_lower(self, node: Syntax) -> Value:
        return self._of_text(node, str.lower)

    def _to_upper(self, node: Syntax) -> Value:
        return self._of_text(node, str.upper)

    def _of_text(self, node: Syntax, change: Callable[[str], str]) -> Value:
        arguments = self.part(node, kind(node), "arguments")
        if len(arguments) != 1:
            raise self.refused(node)
        value = self.value(arguments[0])

        def changed(row: Row) -> str | None:
            text = value(row)
            if text is not None and not isinstance(text, str):
                raise self.refused(node, f"a text is needed, not {text!r}")
            return None if text is None else change(text)

        return changed


_WRAPPERS = {
    "BooleanTest": "boolean_primary",
    "ParenthesizedBooleanValueExpression": "boolean_value_expression",
    "ParenthesizedValueExpression": "value_expression",
    "ArithmeticValueExpression": "base",
    "ArithmeticTerm": "base",
}
_LISTS = {
    "CharacterStringValueExpression": "list_character_string_value_expression",
    "ListValueExpression": "list_list_primary",
}
_WAYS = {"FullEdgePointingRight": ">", "FullEdgePointingLeft": "<", "FullEdgeAnyDirection": "-"}
_ABBREVIATED = {"RIGHT_ARROW": ">", "LEFT_ARROW": "<", "MINUS_SIGN": "-"}
_MATCHES: dict[str, Callable[[str, str], bool]] = {
    "STARTS_WITH": str.startswith,
    "ENDS_WITH": str.endswith,
    "CONTAINS": str.__contains__,
}


def _any_label(_: str) -> bool:
    return True


_READERS: dict[str, Callable[[_Reading, Syntax], Value]] = {
    "BooleanValueExpression": _Reading._boolean_value_expression,
    "BooleanTerm": _Reading._boolean_term,
    "BooleanFactor": _Reading._boolean_factor,
    "ComparisonPredicate": _Reading._comparison_predicate,
    "InPredicate": _Reading._in_predicate,
    "NullPredicate": _Reading._null_predicate,
    "StringMatchPredicate": _Reading._string_match_predicate,
    "LabeledPredicate": _Reading._labeled_predicate,
    "BindingVariableReference": _Reading._binding_variable_reference,
    "PropertyReference": _Reading._property_reference,
    "GeneralValueSpecification": _Reading._general_value_specification,
    "ListValueConstructorByEnumeration": _Reading._list_value_constructor_by_enumeration,
    "CharacterStringLiteral": _Reading._character_string_literal,
    "BooleanLiteral": _Reading._boolean_literal,
    "NullLiteral": _Reading._null_literal,
    "UnsignedNumericLiteral": _Reading._unsigned_numeric_literal,
    "ArithmeticFactor": _Reading._arithmetic_factor,
    "CaseAbbreviation": _Reading._case_abbreviation,
    "ToLower": _Reading._to_lower,
    "ToUpper": _Reading._to_upper,
}
