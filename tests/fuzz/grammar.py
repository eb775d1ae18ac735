"""Turn any bytes into a well-formed filter: each byte chooses a form of a grammar.

Mutated text seldom passes the lexer. These filters pass it, so they test what follows.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

_SEARCH = "'%" + "a" * 90 + "b'"
_FORMS = (
    "({})", "NOT {}", "- {}", "~ {}", "{} AND {}", "{} OR {}", "{} = {}", "{} <> {}", "{} < {}",
    "{} IS {}", "{} IS NOT NULL", "{} + {}", "{} * {}", "{} / {}", "{} % {}", "{} << {}", "{} & {}",
    "{} || {}", "{} || 'x'", "{} -> {}", "{} ->> '$.a'", "{} -> 0", "{} LIKE {}", "{} GLOB {}",
    f"{{}} LIKE {_SEARCH}", "{} GLOB '*a*[a-z][a-z][a-z][a-z][a-z][a-z][a-z]b'",
    "{} LIKE {} ESCAPE '!'", "{} BETWEEN {} AND {}", "{} IN ({}, {}, {})", "{} COLLATE NOCASE",
    "CASE WHEN {} THEN {} ELSE {} END", "CASE {} WHEN {} THEN {} END", "CAST({} AS TEXT)",
    "CAST({} AS BLOB)", "CAST({} AS REAL)", "CAST({} AS INTEGER)", "abs({})", "length({})",
    "upper({})", "lower({})", "max({}, {})", "min({}, {}, {})", "coalesce({}, {})",
    "nullif({}, {})", "iif({}, {}, {})", "round({}, {})", "sign({})", "typeof({})", "unicode({})",
    "substr({}, {}, {})", "instr({}, 'aab')", "like({}, {})", "glob({}, {})", "json_valid({})",
    "json_extract({}, {})", "json_type({}, '$.a')", "json_array_length({})", "date({})",
    "datetime({}, {})", "strftime({}, {}, {})", "unixepoch({})", "julianday({}, {}, {})",
    "likely({})", "(SELECT {} FROM secrets)", "{} IN (SELECT secret FROM secrets WHERE {})",
)  # fmt: skip
_LEAVES = (
    "id", "scope_key", "user", "session", "agent", "content", "source_node", "timestamp",
    "metadata", "intent", "subject", "predicate", "object", "confidence", "episodes.id",
    "NULL", "0", "1", "TRUE", "9223372036854775807", "1e308", ".5", "''", "'a'", "'now'", "'utc'",
    "'$'", "'$.a[0]'", "'%Y %J'", "'+1 month'", "'[1, [2]]'", "'%_%'", "'*[^a]?'", "rid",
)  # fmt: skip
_DEEPEST = 12


def spelled(choices: bytes) -> str:
    """Return the filter that these choices make."""
    return _expression(iter(choices), _DEEPEST)


def _expression(choices: Iterator[int], deepest: int) -> str:
    # Three in four are forms, the others leaves; when none are left, the first leaf.
    choice = next(choices, 204)
    if choice >= 192 or not deepest:
        return _LEAVES[choice % len(_LEAVES)]
    begin, *rest = _FORMS[choice % len(_FORMS)].split("{}")
    return begin + "".join(f"{_expression(choices, deepest - 1)}{part}" for part in rest)


def examples(count: int) -> list[bytes]:
    """Return choices of all kinds, always the same."""
    numbers = _numbers()
    return [bytes(islice(numbers, 4 + place % 60)) for place in range(count)]


def _numbers() -> Iterator[int]:
    state = 1
    while True:
        state = state * 1_103_515_245 + 12_345 & 0x7FFF_FFFF
        yield state >> 16 & 0xFF
