"""Read a ``when_filter`` before SQLite does, and let through only words that are known.

The first wall of the sandbox. What passes is one expression over the documented columns,
with balanced parentheses, literals, operators and functions that cannot run long.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from difflib import get_close_matches
from functools import lru_cache
from typing import NamedTuple

from slumberd.errors import FilterError

LONGEST = 8 * 1024
"""Bytes of a filter."""
LONGEST_PATTERN = 100
"""Characters of a text to look for."""
DEEPEST = 50
"""Parentheses within parentheses."""
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

_DATES = frozenset({"date", "time", "datetime", "julianday", "strftime", "unixepoch"})

# Left out because one call can take seconds or gigabytes, whatever the progress handler does:
# trim printf format replace hex quote zeroblob randomblob group_concat.
FUNCTIONS = _DATES | {
    "abs", "coalesce", "glob", "ifnull", "iif", "instr", "json_array_length", "json_extract",
    "json_type", "json_valid", "length", "like", "likelihood", "likely", "lower", "max", "min",
    "nullif", "round", "sign", "substr", "substring", "typeof", "unicode", "unlikely", "upper",
}  # fmt: skip
"""What a filter can call."""

_KEYWORDS = frozenset({
    "and", "as", "between", "binary", "blob", "case", "cast", "collate", "distinct", "else",
    "end", "episodes", "escape", "false", "from", "glob", "in", "integer", "is", "isnull",
    "like", "nocase", "not", "notnull", "null", "numeric", "or", "real", "text", "then", "true",
    "when",
})  # fmt: skip

_CLOCK = frozenset({"now", "localtime", "utc"})

_TOKEN = re.compile(
    r"""
      (?P<space>   [ \t\r\n\f]+ )
    | (?P<comment> -- | /\* )
    | (?P<string>  '(?:[^']|'')*' )
    | (?P<quoted>  "(?:[^"]|"")*" | `[^`]*` | \[[^\]]*\] )
    | (?P<number>  0[xX][0-9a-fA-F]+ | (?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)? )
    | (?P<word>    [A-Za-z_][A-Za-z0-9_]* )
    | (?P<open>    \( )
    | (?P<close>   \) )
    | (?P<sign>    \|\| | ->> | -> | << | >> | <= | >= | <> | != | == | [=<>+\-*/%&|~,.] )
    """,
    re.VERBOSE,
)

_REMEDIES = {
    ";": "one expression, without ';'",
    "?": "no parameters; write the value itself",
    ":": "no parameters; write the value itself",
    "@": "no parameters; write the value itself",
    "$": "no parameters; write the value itself",
    "#": "no parameters; write the value itself",
    "'": "the text that begins here has no end; double a quote inside a text",
    '"': "the name that begins here has no end; texts take single quotes",
    "\0": "NUL has no place in a filter",
    **dict.fromkeys("\u2018\u2019\u201c\u201d`\u00b4", "a text takes plain single quotes: '"),
    "\u00a0": "this is no plain space; write one",
    "!": "write <> or NOT",
}


class Token(NamedTuple):
    """One piece of a filter.

    Attributes:
        kind: ``string quoted number word open close sign``.
        text: As written.
        position: Its first character, from 0.
    """

    kind: str
    text: str
    position: int

    @property
    def end(self) -> int:
        """Its end, from 0."""
        return self.position + len(self.text)


class _Refusal(Exception):  # noqa: N818 # a verdict; FilterError is the error
    def __init__(self, violation: str, position: int | None = None) -> None:
        self.violation = violation
        self.position = position
        super().__init__(violation)


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
def _checked(fragment: str) -> tuple[list[Token], list[_Refusal]]:
    tokens: list[Token] = []
    refusals: list[_Refusal] = []
    try:
        tokens += _tokens(fragment)
        refusals += _unknown(tokens)
        _check_clock(tokens)
        _check_searches(tokens)
    except _Refusal as refusal:
        refusals.append(refusal)
    return tokens, refusals


def _tokens(fragment: str) -> list[Token]:
    if len(fragment.encode(errors="replace")) > LONGEST:
        raise _Refusal(f"is longer than {LONGEST} bytes")
    tokens = list(_split(fragment))
    _check_parentheses(tokens)
    return tokens


def _unknown(tokens: list[Token]) -> Iterator[_Refusal]:
    """Yield every name that is not known, each once."""
    told: set[str] = set()
    for token, following in zip(tokens, [*tokens[1:], None], strict=True):
        try:
            _check_names(token, following)
        except _Refusal as refusal:
            if token.text not in told:
                yield refusal
            told.add(token.text)


def _split(fragment: str) -> Iterator[Token]:
    position = 0
    while position < len(fragment):
        match = _TOKEN.match(fragment, position)
        if match is None:
            raise _Refusal(_unexpected(fragment[position]), position)
        kind = str(match.lastgroup)
        if kind == "comment":
            raise _Refusal("comments are not allowed", position)
        if kind in ("string", "quoted"):
            _check_text(match.group(), position)
        if kind != "space":
            yield Token(kind, match.group(), position)
        position = match.end()


def _unexpected(character: str) -> str:
    return _REMEDIES.get(character, f"{character!r} has no place outside a text in single quotes")


def _check_text(text: str, position: int) -> None:
    for offset, character in enumerate(text):
        if character == "\0" or "\ud800" <= character <= "\udfff":
            raise _Refusal(f"{character!r} has no place in a filter", position + offset)


def _check_parentheses(tokens: list[Token]) -> None:
    open_at: list[int] = []
    for token in tokens:
        if token.kind == "open":
            open_at.append(token.position)
        if token.kind == "close" and not open_at:
            raise _Refusal("')' closes nothing", token.position)
        if token.kind == "close":
            open_at.pop()
        if len(open_at) > DEEPEST:
            raise _Refusal(f"parentheses are nested deeper than {DEEPEST}", token.position)
    if open_at:
        raise _Refusal("'(' is never closed", open_at[-1])


def _check_names(token: Token, following: Token | None) -> None:
    if token.kind == "quoted" and token.text[1:-1].lower() not in COLUMNS:
        raise _Refusal(
            f"{token.text} is no column; texts take single quotes"
            f"{_nearest(token.text[1:-1], COLUMNS, 'columns')}",
            token.position,
        )
    if token.kind == "word":
        _check_word(token, called=following is not None and following.kind == "open")


def _check_word(token: Token, *, called: bool) -> None:
    word = token.text.lower()
    if word in _KEYWORDS or word in (FUNCTIONS if called else COLUMNS):
        return
    if called:
        near = _nearest(word, FUNCTIONS, "functions")
        raise _Refusal(f"{token.text!r} is no function of filters{near}", token.position)
    near = _nearest(word, (*COLUMNS, *_KEYWORDS), "columns", quotable=True)
    raise _Refusal(f"{token.text!r} is no column or word of filters{near}", token.position)


def _nearest(word: str, known: Iterable[str], kind: str, *, quotable: bool = False) -> str:
    near = get_close_matches(word.lower()[:_LONGEST_NAME], sorted(known), n=1)
    quotes = " (a text takes single quotes)" if quotable else ""
    if near:
        return f"; did you mean {near[0]!r}?{quotes}"
    return f"; {kind} are {', '.join(sorted(known) if kind == 'functions' else COLUMNS)}{quotes}"


def _check_clock(tokens: list[Token]) -> None:
    """Refuse what would give another answer tomorrow: replays and backfills could not agree."""
    if not any(token.kind == "word" and token.text.lower() in _DATES for token in tokens):
        return
    for token, after, later in zip(tokens, tokens[1:], [*tokens[2:], None], strict=False):
        if token.kind == "string" and token.text[1:-1].strip().lower() in _CLOCK:
            raise _Refusal(f"{token.text} depends on the machine's clock", token.position)
        if token.text.lower() in _DATES and after.kind == "open" and _is_close(later):
            raise _Refusal(f"{token.text}() reads the machine's clock", token.position)


def _check_searches(tokens: list[Token]) -> None:
    """Let ``instr`` look for short texts only: its time is the product of both lengths."""
    for place, token in enumerate(tokens):
        if token.kind == "word" and token.text.lower() == "instr":
            sought = _last_argument(tokens[place + 2 :])
            if [piece.kind for piece in sought] != ["string"]:
                raise _Refusal("instr looks for a text in single quotes only", token.position)
            if len(sought[0].text) > LONGEST_PATTERN:
                raise _Refusal(
                    f"instr looks for at most {LONGEST_PATTERN} characters", sought[0].position
                )


def _last_argument(tokens: list[Token]) -> list[Token]:
    argument: list[Token] = []
    depth = 1
    for token in tokens:
        depth += (token.kind == "open") - (token.kind == "close")
        if depth == 0:
            break
        argument = [] if depth == 1 and token.text == "," else [*argument, token]
    return argument


def _is_close(token: Token | None) -> bool:
    return token is not None and token.kind == "close"
