"""Check a ``when_filter`` by its tokens before SQLite compiles it: the sandbox's first wall.

A filter passes if it is one expression over the documented columns, with balanced parentheses,
literals, operators and functions that cannot run long, and if it reads no clock.

SQLite checks the deadline between columns, never within one call, and keeps the arguments of each
call until the row is done. So the checks bound the cost of a row beforehand.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from difflib import get_close_matches
from functools import lru_cache

from slumberd.model.errors import FilterError
from slumberd.rules.filters.tokenizer import FilterRefusal, FilterToken, arguments, split

LONGEST_PATTERN = 100
"""The most characters of a text that a filter searches for."""
MOST = 128
"""The most columns, calls (also LIKE and GLOB), ``||``, ``->`` and ``->>`` of one filter."""
MOST_JOINED = 2
"""The most ``||`` whose right side is not a literal; none beside GLOB, the slowest search."""
MOST_ARROWS = 10
"""The most ``->`` and ``->>`` one after another."""

DATES = frozenset({"date", "time", "datetime", "julianday", "strftime", "unixepoch"})
"""The date functions that a filter can call."""

_CLOCK = frozenset({"now", "localtime", "utc", "subsec", "subsecond"})
_ARROWS = frozenset({"->", "->>"})
_JOINS = _ARROWS | {"||"}
_EQUALS = frozenset({"=", "==", "<>", "!="})


def check_work(tokens: list[FilterToken], names: Collection[str]) -> None:
    """Check how many texts a row can make, how long they grow, and how deep paths go.

    Args:
        names: The names of columns and functions.

    Raises:
        Refusal: A bound is exceeded; with the first token beyond it.
    """
    work = [token for token in tokens if _is_work(token, names)]
    if len(work) > MOST:
        raise FilterRefusal(
            f"reads, calls and joins more than {MOST} times; a list takes IN", work[MOST].position
        )
    _check_joins(tokens)
    _check_arrows(tokens)


def _is_work(token: FilterToken, names: Collection[str]) -> bool:
    return token.word in names or token.kind == "quoted" or token.text in _JOINS


def _check_joins(tokens: list[FilterToken]) -> None:
    pairs = zip(tokens, [*tokens[1:], None], strict=False)
    joins = [token for token, after in pairs if _joins_more(token, after)]
    if joins and any(token.word == "glob" for token in tokens):
        raise FilterRefusal("GLOB does not go with values joined by '||'", joins[0].position)
    if len(joins) > MOST_JOINED:
        raise FilterRefusal(
            f"joins more than {MOST_JOINED + 1} values with '||'", joins[MOST_JOINED].position
        )


def _joins_more(token: FilterToken, after: FilterToken | None) -> bool:
    return token.text == "||" and (after is None or after.kind != "string")


def _check_arrows(tokens: list[FilterToken]) -> None:
    arrows = 0
    for token in tokens:
        if token.text in _ARROWS:
            arrows += 1
        elif token.kind in ("word", "sign"):
            arrows = 0
        if arrows > MOST_ARROWS:
            raise FilterRefusal(
                f"more than {MOST_ARROWS} '->' follow each other; a path goes deeper: '$.a.b'",
                token.position,
            )


def check_calls(tokens: list[FilterToken]) -> None:
    """Check that no single call is slow: no long text to search for, no several paths at once.

    Raises:
        Refusal: ``instr`` or ``json_extract`` has such arguments.
    """
    for place, token in enumerate(tokens):
        if not _is_called(tokens, place):
            continue
        match token.word:
            case "instr":
                _check_sought(token, arguments(tokens, place)[-1])
            case "json_extract" if len(arguments(tokens, place)) > 2:
                raise FilterRefusal("json_extract takes one path", token.position)


def check_json(tokens: list[FilterToken]) -> None:
    """Check that no JSON function reads the content of an episode, because it is a text.

    Raises:
        Refusal: A JSON function or an arrow reads ``content``.
    """
    for place, token in enumerate(tokens):
        if _reads_json(tokens, place):
            raise FilterRefusal(_NO_JSON, token.position)


_NO_JSON = (
    "'content' is a text and no JSON; name 'metadata', as in json_extract(metadata, '$.topic')"
)
_JSON_READERS = ("json_extract", "json_type", "json_array_length")


def _reads_json(tokens: list[FilterToken], place: int) -> bool:
    if tokens[place].word in _JSON_READERS and _is_called(tokens, place):
        return any(map(_is_content, arguments(tokens, place)[0]))
    after = tokens[place + 1].text if place + 1 < len(tokens) else ""
    return _is_content(tokens[place]) and after in _ARROWS


def _is_content(token: FilterToken) -> bool:
    return token.kind in ("word", "quoted") and token.text.strip('"`[]').lower() == "content"


def _is_called(tokens: list[FilterToken], place: int) -> bool:
    return place + 1 < len(tokens) and tokens[place + 1].kind == "open"


def _check_sought(call: FilterToken, sought: list[FilterToken]) -> None:
    # The time of instr is the product of both lengths.
    if [piece.kind for piece in sought] != ["string"]:
        raise FilterRefusal("instr looks for a text in single quotes only", call.position)
    # A quotation mark within the text is written twice.
    text = sought[0].text[1:-1].replace("''", "'")
    if len(text) > LONGEST_PATTERN:
        raise FilterRefusal(
            f"instr looks for at most {LONGEST_PATTERN} characters", sought[0].position
        )


def check_clock(tokens: list[FilterToken]) -> None:
    """Check that the filter reads no clock, so that replays and backfills give equal results.

    A row with the text ``now`` in place of a date is not a matter of tokens; `sandbox.clockless`
    handles it.

    Raises:
        Refusal: A date function would read the machine's time or time zone.
    """
    if DATES.isdisjoint(token.word for token in tokens):
        return
    for place, token in enumerate(tokens):
        if token.kind == "string" and token.text[1:-1].strip().lower() in _CLOCK:
            raise FilterRefusal(f"{token.text} depends on the machine's clock", token.position)
        if token.word in DATES and _is_called(tokens, place) and not _has_time(tokens, place):
            raise FilterRefusal(
                f"{token.text} without a time reads the machine's clock", token.position
            )


def _has_time(tokens: list[FilterToken], place: int) -> bool:
    given = arguments(tokens, place)
    return len(given) > (tokens[place].word == "strftime") and given[0] != []


def check_nulls(tokens: list[FilterToken]) -> None:
    """Check that no operator compares with NULL, because that is never true.

    Raises:
        Refusal: An operator does.
    """
    before: FilterToken | None = None
    for place, token in enumerate(tokens[:-1]):
        after = tokens[place + 1]
        if token.text in _EQUALS and after.word == "null":
            raise FilterRefusal(_never(token), token.position)
        if token.word == "null" and after.text in _EQUALS and _begins(before):
            raise FilterRefusal(_never(after), token.position)
        before = token


def _begins(before: FilterToken | None) -> bool:
    # In other places NULL may be the end of `x IS NULL`, and its result may be compared.
    return before is None or before.kind == "open" or before.word in ("and", "or")


def _never(sign: FilterToken) -> str:
    instead = "IS NULL" if sign.text in ("=", "==") else "IS NOT NULL"
    return f"'{sign.text} NULL' is never true; write {instead}"


LONGEST = 8 * 1024
"""The most bytes of a filter."""
_LONGEST_NAME = 64

COLUMNS = (
    "id",
    "scope_key",
    "user",
    "session",
    "agent",
    "content",
    "source_node",
    "speaker",
    "is_person",
    "timestamp",
    "metadata",
    "intent",
    "subject",
    "predicate",
    "object",
    "confidence",
)
"""The columns that a filter can read, in the order of the documentation."""

FUNCTIONS = DATES | {
    "abs", "coalesce", "glob", "ifnull", "iif", "instr", "json_array_length", "json_extract",
    "json_type", "json_valid", "length", "like", "likelihood", "likely", "lower", "max", "min",
    "nullif", "round", "sign", "substr", "substring", "typeof", "unicode", "unlikely", "upper",
}  # fmt: skip
"""The functions that a filter can call."""

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


def tokens_of(rule_id: str, fragment: str) -> list[FilterToken]:
    """Return the tokens of a filter that passes all checks.

    Raises:
        FilterError: It does not pass; with the position of the first offending character.
    """
    tokens, refusals = _check(fragment)
    errors = [
        FilterError(rule_id, refusal.violation, position=refusal.position) for refusal in refusals
    ]
    if errors:
        first = refusals[0]
        raise FilterError(rule_id, first.violation, position=first.position, further=errors[1:])
    return tokens


def reads_column(fragment: str, column: str) -> bool:
    """Return whether a filter names a column."""
    return column in columns_in(_check(fragment)[0])


def columns_in(tokens: list[FilterToken]) -> frozenset[str]:
    """Return the columns that tokens name."""
    return frozenset(COLUMNS) & {token.text.strip('"`[]').lower() for token in tokens}


@lru_cache(maxsize=1024)
def _check(fragment: str) -> tuple[list[FilterToken], list[FilterRefusal]]:
    tokens: list[FilterToken] = []
    refusals: list[FilterRefusal] = []
    try:
        tokens += _split(fragment)
        refusals += _find_unknown_names(tokens)
        check_nulls(tokens)
        check_clock(tokens)
        check_json(tokens)
        check_calls(tokens)
        check_work(tokens, _NAMES)
    except FilterRefusal as refusal:
        refusals.append(refusal)
    return tokens, refusals


def _split(fragment: str) -> list[FilterToken]:
    if len(fragment.encode(errors="replace")) > LONGEST:
        raise FilterRefusal(f"is longer than {LONGEST} bytes")
    return split(fragment)


def _find_unknown_names(tokens: list[FilterToken]) -> Iterator[FilterRefusal]:
    """Yield a refusal of every unknown name, each name once."""
    refused: set[str] = set()
    for before, token, after in zip([None, *tokens], tokens, [*tokens[1:], None], strict=False):
        problem = _problem(before, token, after)
        if problem and token.text not in refused:
            yield FilterRefusal(problem, token.position)
            refused.add(token.text)


def _problem(before: FilterToken | None, token: FilterToken, after: FilterToken | None) -> str:
    if token.text == "&" and after is not None and after.text == "&":
        return "write AND for '&&'"
    if token.kind == "quoted" and token.text[1:-1].lower() not in COLUMNS:
        near = _nearest(token.text[1:-1], COLUMNS, "columns")
        return f"{token.text} is not a column; texts take single quotes{near}"
    if token.kind != "word" or token.word in _KEYWORDS:
        return ""
    if after is not None and after.kind == "open":
        return "" if token.word in FUNCTIONS else _no_function(token)
    return "" if token.word in COLUMNS else _no_column(before, token)


def _no_function(token: FilterToken) -> str:
    near = _nearest(token.word, FUNCTIONS, "functions")
    remedy = f"; {_REMEDIES[token.word]}" if token.word in _REMEDIES else near
    return f"{token.text!r} is not a function of filters{remedy}"


def _no_column(before: FilterToken | None, token: FilterToken) -> str:
    remedy = _nearest(token.word, (*COLUMNS, *_KEYWORDS), "columns", quotable=True)
    if token.word in _REMEDIES:
        remedy = f"; {_REMEDIES[token.word]}"
    elif before is not None and before.text == ".":
        remedy = f"; a part of metadata is metadata ->> '$.{token.text}'"
    return f"{token.text!r} is not a column or word of filters{remedy}"


def _nearest(word: str, known: Iterable[str], kind: str, *, quotable: bool = False) -> str:
    near = get_close_matches(word.lower()[:_LONGEST_NAME], sorted(known), n=1)
    quotes = " (a text takes single quotes)" if quotable else ""
    if near:
        return f"; did you mean {near[0]!r}?{quotes}"
    return f"; {kind} are {', '.join(sorted(known) if kind == 'functions' else COLUMNS)}{quotes}"
