"""Read a ``when_filter`` before SQLite does, and let through only words that are known.

The first wall of the sandbox. What passes is one expression over the documented columns,
with balanced parentheses, literals, operators and functions that cannot run long.
"""

from __future__ import annotations

from difflib import get_close_matches
from functools import lru_cache

from slumberd.errors import FilterError
from slumberd.stores.bounds import DATES, check_calls, check_clock, check_nulls, check_work
from slumberd.stores.tokens import Refusal, Token, split

LONGEST = 8 * 1024
"""Bytes of a filter."""

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

_BEFORE_TEXTS = frozenset({"=", "==", "<>", "!=", "like", "glob"})


def tokens_of(rule_id: str, fragment: str) -> list[Token]:
    """Return the pieces of a filter that may be handed to SQLite.

    Raises:
        FilterError: It may not; with the position of the first offending character.
    """
    try:
        return _checked(fragment)
    except Refusal as refusal:
        raise FilterError(rule_id, refusal.violation, position=refusal.position) from None


@lru_cache(maxsize=1024)
def _checked(fragment: str) -> list[Token]:
    if len(fragment.encode(errors="replace")) > LONGEST:
        raise Refusal(f"is longer than {LONGEST} bytes")
    tokens = split(fragment)
    _check_names(tokens)
    check_nulls(tokens)
    check_clock(tokens)
    check_calls(tokens)
    check_work(tokens, _NAMES)
    return tokens


def _check_names(tokens: list[Token]) -> None:
    for before, token, after in zip([None, *tokens], tokens, [*tokens[1:], None], strict=False):
        if token.text == "&" and after is not None and after.text == "&":
            raise Refusal("write AND for '&&'", token.position)
        if token.kind == "quoted" and token.text[1:-1].lower() not in COLUMNS:
            name = token.text[1:-1]
            raise Refusal(
                f"{token.text} is no column; texts take single quotes{_nearest(name)}",
                token.position,
            )
        if token.kind == "word" and not _is_known(token, after):
            raise Refusal(_unknown(before, token, after), token.position)


def _is_known(token: Token, after: Token | None) -> bool:
    return token.word in _KEYWORDS or token.word in (FUNCTIONS if _opens(after) else COLUMNS)


def _opens(after: Token | None) -> bool:
    return after is not None and after.kind == "open"


def _unknown(before: Token | None, token: Token, after: Token | None) -> str:
    kind = "function" if _opens(after) else "column or word"
    problem = f"{token.text!r} is no {kind} of filters"
    if remedy := _REMEDIES.get(token.word):
        return f"{problem}; {remedy}"
    if before is not None and before.text == ".":
        return f"{problem}; a part of metadata is metadata ->> '$.{token.text}'"
    if before is not None and before.text.lower() in _BEFORE_TEXTS and not _opens(after):
        return f"{problem}; a text takes single quotes{_nearest(token.word, '')}"
    return f"{problem}{_nearest(token.word)}"


def _nearest(word: str, otherwise: str = f"; columns are {', '.join(COLUMNS)}") -> str:
    known = sorted({*COLUMNS, *FUNCTIONS, *_KEYWORDS})
    near = get_close_matches(word.lower(), known, n=1)
    return f"; did you mean {near[0]!r}?" if near else otherwise
