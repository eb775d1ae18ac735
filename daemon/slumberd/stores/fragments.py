"""Read a ``when_filter`` before SQLite does, and let through only words that are known.

The first wall of the sandbox. What passes is one expression over the documented columns,
with balanced parentheses, literals, operators and functions that cannot run long.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from difflib import get_close_matches
from functools import lru_cache

from slumberd.errors import FilterError
from slumberd.stores.bounds import (
    DATES,
    check_calls,
    check_clock,
    check_json,
    check_nulls,
    check_work,
)
from slumberd.stores.tokens import Refusal, Token, split

LONGEST = 8 * 1024
"""Bytes of a filter."""
_LONGEST_NAME = 64

COLUMNS = (
    "id",
    "scope_key",
    "user",
    "session",
    "agent",
    "content",
    "source_node",
    "timestamp",
    "metadata",
    "intent",
    "subject",
    "predicate",
    "object",
    "confidence",
)
"""What a filter can read, in the order of the documentation."""

FUNCTIONS = DATES | {
    "abs", "coalesce", "glob", "ifnull", "iif", "instr", "json_array_length", "json_extract",
    "json_type", "json_valid", "length", "like", "likelihood", "likely", "lower", "max", "min",
    "nullif", "round", "sign", "substr", "substring", "typeof", "unicode", "unlikely", "upper",
}  # fmt: skip
"""What a filter can call."""

_NAMES = frozenset({*COLUMNS, *FUNCTIONS})

_KEYWORDS = frozenset({
    "and", "as", "between", "binary", "blob", "case", "cast", "collate", "distinct", "else",
    "end", "episodes", "escape", "false", "from", "glob", "in", "integer", "is", "isnull",
    "like", "nocase", "not", "notnull", "null", "numeric", "or", "real", "text", "then", "true",
    "when",
})  # fmt: skip

_ONE_ROW = "a filter sees one episode at a time"
_ONE_TABLE = "a filter reads the columns of its episode, and no table"
_LONG = "one call of it can take seconds or gigabytes"
_CHANGES = "its answer changes from one time to the next"
_REMEDIES = {
    **dict.fromkeys(("count", "sum", "total", "avg", "group_concat", "over"), _ONE_ROW),
    **dict.fromkeys(("select", "exists", "union", "with", "values", "json_each"), _ONE_TABLE),
    **dict.fromkeys(("trim", "ltrim", "rtrim", "replace", "printf", "format", "hex"), _LONG),
    **dict.fromkeys(("quote", "zeroblob", "randomblob"), _LONG),
    **dict.fromkeys(("random", "now", "current_timestamp", "current_date"), _CHANGES),
    "current_time": _CHANGES,
    "concat": "'||' joins texts",
    "ilike": "LIKE does not mind the case of a to z",
    "contains": "instr(content, 'word') > 0 looks for a word",
    "regexp": "LIKE and GLOB take patterns",
    "match": "LIKE and GLOB take patterns",
    "len": "did you mean 'length'?",
}


def tokens_of(rule_id: str, fragment: str) -> list[Token]:
    """Return the pieces of a filter that may be handed to SQLite.

    Raises:
        FilterError: It may not; with the position of the first offending character.
    """
    tokens, refusals = _checked(fragment)
    errors = [FilterError(rule_id, one.violation, position=one.position) for one in refusals]
    if errors:
        first = refusals[0]
        raise FilterError(rule_id, first.violation, position=first.position, further=errors[1:])
    return tokens


@lru_cache(maxsize=1024)
def _checked(fragment: str) -> tuple[list[Token], list[Refusal]]:
    tokens: list[Token] = []
    refusals: list[Refusal] = []
    try:
        tokens += _split(fragment)
        refusals += _unknown(tokens)
        check_nulls(tokens)
        check_clock(tokens)
        check_json(tokens)
        check_calls(tokens)
        check_work(tokens, _NAMES)
    except Refusal as refusal:
        refusals.append(refusal)
    return tokens, refusals


def _split(fragment: str) -> list[Token]:
    if len(fragment.encode(errors="replace")) > LONGEST:
        raise Refusal(f"is longer than {LONGEST} bytes")
    return split(fragment)


def _unknown(tokens: list[Token]) -> Iterator[Refusal]:
    """Yield every name that is not known, each once."""
    told: set[str] = set()
    for before, token, after in zip([None, *tokens], tokens, [*tokens[1:], None], strict=False):
        problem = _problem(before, token, after)
        if problem and token.text not in told:
            yield Refusal(problem, token.position)
            told.add(token.text)


def _problem(before: Token | None, token: Token, after: Token | None) -> str:
    if token.text == "&" and after is not None and after.text == "&":
        return "write AND for '&&'"
    if token.kind == "quoted" and token.text[1:-1].lower() not in COLUMNS:
        near = _nearest(token.text[1:-1], COLUMNS, "columns")
        return f"{token.text} is no column; texts take single quotes{near}"
    if token.kind != "word" or token.word in _KEYWORDS:
        return ""
    if after is not None and after.kind == "open":
        return "" if token.word in FUNCTIONS else _no_function(token)
    return "" if token.word in COLUMNS else _no_column(before, token)


def _no_function(token: Token) -> str:
    near = _nearest(token.word, FUNCTIONS, "functions")
    remedy = f"; {_REMEDIES[token.word]}" if token.word in _REMEDIES else near
    return f"{token.text!r} is no function of filters{remedy}"


def _no_column(before: Token | None, token: Token) -> str:
    remedy = _nearest(token.word, (*COLUMNS, *_KEYWORDS), "columns", quotable=True)
    if token.word in _REMEDIES:
        remedy = f"; {_REMEDIES[token.word]}"
    elif before is not None and before.text == ".":
        remedy = f"; a part of metadata is metadata ->> '$.{token.text}'"
    return f"{token.text!r} is no column or word of filters{remedy}"


def _nearest(word: str, known: Iterable[str], kind: str, *, quotable: bool = False) -> str:
    near = get_close_matches(word.lower()[:_LONGEST_NAME], sorted(known), n=1)
    quotes = " (a text takes single quotes)" if quotable else ""
    if near:
        return f"; did you mean {near[0]!r}?{quotes}"
    return f"; {kind} are {', '.join(sorted(known) if kind == 'functions' else COLUMNS)}{quotes}"
