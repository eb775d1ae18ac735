r"""Compile regular expressions on the engine of the extra ``regex``, which takes linear time.

Expressions are translated, so that RE2 reads the letters and digits of all scripts.
In RE2 ``\w``, ``\d``, ``\s``, ``\b`` and classes such as ``[:alpha:]`` know ASCII only. The classes
become classes of Unicode. RE2 has no ``\b`` of Unicode, and no look-around to build one. So an
expression with ``\b`` or ``\B`` has a second form, for texts that are not ASCII. It reads a
*marked* text, where each character stands between two marks. The marks beside a letter are ASCII
letters, and those beside a space or a stop are ``-``. There the ``\b`` of RE2 is right.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache, cached_property, lru_cache
from typing import Any, NamedTuple, Protocol, cast

from slumberd.model.errors import ExtraMissingError, PatternError

WORD = r"_\x{200C}\x{200D}\pN\pM\pL"
r"""The characters of ``\w``: letters with their marks, numbers, ``_``, and joiners in words."""

_SPACE = r"\t-\r\x1C-\x20\x{85}\pZ"
_CLASSES = {
    "w": WORD,
    "d": r"\p{Nd}",
    "s": _SPACE,
    "alnum": r"\pN\pM\pL",
    "alpha": r"\pM\pL",
    "blank": r"\t\p{Zs}",
    "cntrl": r"\p{Cc}",
    "digit": r"\p{Nd}",
    "graph": r"\p{Cf}\p{Co}\pS\pP\pN\pM\pL",
    "lower": r"\p{Ll}",
    "print": r"\p{Zs}\p{Cf}\p{Co}\pS\pP\pN\pM\pL",
    "punct": r"$+<=>^`|~\pP",
    "space": _SPACE,
    "upper": r"\p{Lu}",
    "word": WORD,
}
"""The characters of each class, by its letter or its POSIX name; ``ascii`` and ``xdigit`` stay."""

_ESCAPE = r"\\(?:x\{[0-9A-Fa-f]+\}|x[0-9A-Fa-f]{2}|[0-7]{1,3}|[pP](?:\{[^}]*\}|.)|.)"
_POSIX = r"\[:(?P<not>\^?)(?P<name>[a-z]+):\]"
_ITEM = re.compile(rf"{_POSIX}|(?P<one>{_ESCAPE}|.)", re.DOTALL)
_TOKEN = re.compile(
    r"\\Q(?P<quoted>.*?)(?:\\E|\Z)"
    rf"|(?P<class>\[\^?\]?(?:\[:\^?[a-z]+:\]|{_ESCAPE}|[^\]\\])*\])"
    r"|(?:\((?:\?(?:P?<[^>]*>|[A-Za-z]*-?[A-Za-z]*[:)]))?|[)|]"  # groups
    r"|(?:[*+?]|\{[0-9]+(?:,[0-9]*)?\})\??"  # repetitions
    r"|[\^$]|\\[bBAz])"  # places
    rf"|(?P<one>{_ESCAPE}|.)",
    re.DOTALL,
)


class Unsupported(NamedTuple):
    """A part of an expression that has no meaning for texts of Unicode.

    Attributes:
        problem: Why, and what to write.
        position: Where it begins in the expression, in characters.
    """

    problem: str
    position: int


class ExpressionToken(NamedTuple):
    """A part of an expression.

    Attributes:
        text: As it stands; a quoted character is escaped.
        position: Where it begins.
        is_character: Whether it matches exactly one character.
    """

    text: str
    position: int
    is_character: bool


def tokens_of(expression: str) -> list[ExpressionToken]:
    """Return the parts of a valid expression in RE2's syntax, in order."""
    return list(_tokens(expression))


def _tokens(expression: str) -> Iterator[ExpressionToken]:
    for match in _TOKEN.finditer(expression):
        if match["quoted"] is None:
            yield ExpressionToken(match[0], match.start(), bool(match["class"] or match["one"]))
        for character in match["quoted"] or "":
            yield ExpressionToken(f"\\x{{{ord(character):x}}}", match.start(), True)


def find_unsupported(tokens: Iterable[ExpressionToken]) -> Unsupported | None:
    """Return the first part of an expression that has no translation."""
    for token in tokens:
        if token.text == r"\C":
            return Unsupported(r"\C is one byte; write (?s:.) for any character", token.position)
    return None


def has_boundary(tokens: Iterable[ExpressionToken]) -> bool:
    r"""Return whether an expression contains ``\b`` or ``\B``."""
    return any(token.text in (r"\b", r"\B") for token in tokens)


def translate(
    tokens: Iterable[ExpressionToken], outside: Callable[[str], str], *, marked: bool = False
) -> str:
    """Return a valid expression with classes of Unicode.

    Args:
        tokens: The parts of the expression; none is unsupported.
        outside: Returns the characters that are not in a class, as a class.
        marked: Whether the result reads marked texts.
    """
    form = r"(?:\C{}\C)" if marked else "{}"
    return "".join(
        form.format(_atom(token.text, outside)) if token.is_character else token.text
        for token in tokens
    )


def _atom(text: str, outside: Callable[[str], str]) -> str:
    if text.startswith("["):
        return _class(text, outside)
    name = text[1:].lower()
    if text.startswith("\\") and name in _CLASSES:
        return f"[{'^' if text[1].isupper() else ''}{_CLASSES[name]}]"
    return text


def _class(text: str, outside: Callable[[str], str]) -> str:
    start = 2 if text.startswith("[^") else 1
    items = [_item(match, outside) for match in _ITEM.finditer(text, start, len(text) - 1)]
    return text[:start] + "".join(items) + "]"


def _item(match: re.Match[str], outside: Callable[[str], str]) -> str:
    one = match["one"]
    if one is None:
        known, is_negated = _CLASSES.get(match["name"]), bool(match["not"])
    else:
        known, is_negated = _CLASSES.get(one[1:].lower()), one[1:].isupper()
        known = known if one.startswith("\\") else None
    if known is None:
        return match[0]
    return outside(known) if is_negated else known


class Match(Protocol):
    """One match of an expression. Offsets count characters of the text, from 0."""

    def start(self) -> int:
        """Return where the match begins."""
        ...

    def end(self, group: int = 0) -> int:
        """Return where the match or one of its groups ends; -1 for a group that took no part."""
        ...

    def groupdict(self) -> dict[str, str | None]:
        """Return the text of each named group; None for a group that took no part."""
        ...


class Expression(Protocol):
    """A compiled expression. No text takes more than linear time; lone surrogates are refused."""

    @property
    def groupindex(self) -> Mapping[str, int]:
        """The number of each named group."""
        ...

    def fullmatch(self, text: str) -> Match | None:
        """Return the match of the whole text."""
        ...

    def search(self, text: str) -> Match | None:
        """Return the first match in the text."""
        ...

    def finditer(self, text: str) -> Iterator[Match]:
        """Yield the matches in the text that do not overlap. Each one takes linear time."""
        ...


def compile_expression(slot: str, text: str, *, ignore_case: bool = False) -> Expression:
    r"""Return a compiled expression. Its ``\w``, ``\d``, ``\s`` and ``\b`` know all scripts.

    Args:
        slot: What the expression belongs to, for errors.
        text: In RE2's syntax.
        ignore_case: Whether upper and lower case are the same.

    Raises:
        PatternError: The expression is invalid.
        ExtraMissingError: The extra ``regex`` is not installed.
    """
    try:
        import re2  # of an extra
    except ImportError as error:
        problem = f"{slot} {text!r} is a regular expression, and there is no engine for them"
        raise ExtraMissingError("regex", problem) from error
    try:
        _compiled(text, ignore_case=ignore_case)  # the errors name the expression as it was written
        tokens = tokens_of(text)
        if unsupported := find_unsupported(tokens):
            raise PatternError(slot, text, unsupported.problem, unsupported.position)
        plain = _compiled(translate(tokens, _outside), ignore_case=ignore_case)
        return _Bounded(plain, tokens, ignore_case=ignore_case) if has_boundary(tokens) else plain
    except re2.error as error:
        raise _error(slot, text, error.args[0]) from error


_LARGER = 4
"""A marked form has two bytes more for each character, and a beginning: it needs less than this."""


def _compiled(text: str, *, ignore_case: bool, larger: int = 1) -> Any:  # noqa: ANN401 # no types
    import re2  # of an extra

    options = re2.Options()
    options.max_mem *= larger
    options.log_errors = False
    options.case_sensitive = not ignore_case
    return re2.compile(text, options)


def _error(slot: str, text: str, message: Any) -> PatternError:  # noqa: ANN401 # bytes or str
    problem = message.decode(errors="replace") if isinstance(message, bytes) else str(message)
    if problem.startswith("pattern too large"):
        problem = r"it is too large; repeat \w and other classes fewer times, or write + or *"
    # The engine quotes the invalid part, and does not report its position.
    _, _, invalid = problem.partition(": ")
    place = text.find(invalid) if invalid else -1
    return PatternError(slot, text, problem, place if place >= 0 else None)


_SURROGATES = range(0xD800, 0xE000)


@cache
def _outside(characters: str) -> str:
    """Return the characters that are not in a class, as a class: RE2 has no nested classes."""
    known = "".join(chr(code) for code in range(0x110000) if code not in _SURROGATES)
    runs = _compiled(f"[^{characters}]+", ignore_case=False).finditer(known)
    ends = ((ord(known[run.start()]), ord(known[run.end() - 1])) for run in runs)
    return "".join(f"\\x{{{first:x}}}-\\x{{{last:x}}}" for first, last in ends)


class _Bounded:
    r"""An expression with ``\b``: texts that are not ASCII are marked.

    Attributes:
        groupindex: The number of each named group.
    """

    def __init__(
        self,
        plain: Any,  # noqa: ANN401 # as above
        tokens: Sequence[ExpressionToken],
        *,
        ignore_case: bool,
    ) -> None:
        self.groupindex: Mapping[str, int] = plain.groupindex
        self._plain = plain
        self._tokens = tokens
        self._ignore_case = ignore_case

    # Most texts are ASCII.
    @cached_property
    def _search(self) -> Any:  # noqa: ANN401 # as above
        return self._compile_marked(r"(?:\C(?s:.)\C)*?({})")

    @cached_property
    def _whole(self) -> Any:  # noqa: ANN401 # as above
        return self._compile_marked("{}")

    def _compile_marked(self, form: str) -> Any:  # noqa: ANN401 # as above
        text = form.replace("{}", translate(self._tokens, _outside, marked=True))
        return _compiled(text, ignore_case=self._ignore_case, larger=_LARGER)

    def fullmatch(self, text: str) -> Match | None:
        """Return the match of the whole text."""
        if text.isascii():
            return cast("Match | None", self._plain.fullmatch(text))
        match = self._whole.fullmatch(_marked(text))
        return None if match is None else _MarkedMatch(match, text, 0)

    def search(self, text: str) -> Match | None:
        """Return the first match in the text."""
        if text.isascii():
            return cast("Match | None", self._plain.search(text))
        return next(self._find_marked(text), None)

    def finditer(self, text: str) -> Iterator[Match]:
        """Return the matches in the text that do not overlap."""
        if text.isascii():
            return cast("Iterator[Match]", self._plain.finditer(text))
        return self._find_marked(text)

    def _find_marked(self, text: str) -> Iterator[Match]:
        marked, at = _marked(text), 0
        while at <= len(text):
            found = self._search.match(marked, 3 * at)
            if found is None:
                return
            match = _MarkedMatch(found, text, 1)
            yield match
            at = match.end() + (match.start() == match.end())


class _MarkedMatch:
    """A match in a marked text, with the offsets and texts of the text itself."""

    def __init__(self, match: Any, text: str, whole: int) -> None:  # noqa: ANN401 # as above
        self._match = match
        self._text = text
        self._whole = whole

    def start(self) -> int:
        """Return where the match begins."""
        return int(self._match.start(self._whole)) // 3

    def end(self, group: int = 0) -> int:
        """Return where the match or one of its groups ends."""
        return int(self._match.end(self._whole + group)) // 3

    def groupdict(self) -> dict[str, str | None]:
        """Return the text of each named group."""
        groups = self._match.re.groupindex.items()
        spans = {name: self._match.span(number) for name, number in groups}
        return {
            name: None if start < 0 else self._text[start // 3 : end // 3]
            for name, (start, end) in spans.items()
        }


class _Marks(dict[str, str]):
    """Each character with its marks; see the docstring of this module."""

    def __missing__(self, character: str) -> str:
        if character.isascii():
            mark = character  # a line's end, too: `^` and `$` of several lines look for it
        else:
            mark = "-" if _word().fullmatch(character) is None else "a"
        marked = mark + character + mark
        if len(self) < _MOST_MARKS:
            self[character] = marked
        return marked


_MOST_MARKS = 50_000


@cache
def _marks() -> _Marks:
    return _Marks()


@lru_cache(maxsize=4)
def _marked(text: str) -> str:
    """Return a text with a mark before and after each character.

    Several expressions read the same sentences.
    """
    return "".join(map(_marks().__getitem__, text))


@cache
def _word() -> Any:  # noqa: ANN401 # as above
    return _compiled(f"[{WORD}]", ignore_case=False)
