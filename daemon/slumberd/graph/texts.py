"""Look at a Cypher query as a text, before any parser does.

Parsers do not agree on comments, escapes and the ends of strings, and what one takes for a word
another may take for a query. Only what all of them split alike is let through.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from slumberd.errors import UnportableCypherError

LONGEST = 4_096
"""Characters of a query at most."""

DEEPEST = 30
"""Brackets within brackets at most."""

PARSE_ERROR = "parse-error"

_QUOTES = "'\"`"
_CLOSING = {")": "(", "]": "[", "}": "{"}
_TOKEN = re.compile(
    r"""(?P<text>'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|`[^`]*`)"""
    r"""|(?P<comment>//|/\*)|(?P<bracket>[()\[\]{}])|(?P<end>;)|(?P<open>['"`])|(?P<odd>[^\t\n\r\x20-\x7e]|\\)""",
    re.DOTALL,
)
_ESCAPES = ("\\\\", "\\n", "\\t")


class Text(NamedTuple):
    """A query that every parser splits alike.

    Attributes:
        cypher: The query.
        bare: The same with everything between quotes blanked out; of the same length.
    """

    cypher: str
    bare: str

    def refused(self, rule: str, problem: str, start: int, end: int) -> UnportableCypherError:
        """Return the error for a part of the query."""
        match = self.cypher[start:end]
        return UnportableCypherError(self.cypher, rule, problem, match=match, position=start)


def text_of(cypher: str) -> Text:
    """Return a query that has a plain form.

    Raises:
        UnportableCypherError: It is empty, too long, nested too deep, or holds comments, several
            statements or characters that parsers read differently.
    """
    if not cypher.strip() or len(cypher) > LONGEST:
        what = "is empty" if not cypher.strip() else f"is longer than {LONGEST:,} characters"
        raise UnportableCypherError(cypher, PARSE_ERROR, f"the query {what}")
    scan = _Scan(cypher)
    for found in _TOKEN.finditer(cypher):
        scan.see(found)
    scan.finish()
    return Text(cypher, "".join(scan.bare))


class _Scan:
    """One query being looked at."""

    def __init__(self, cypher: str) -> None:
        self.bare = list(cypher)
        self._text = Text(cypher, "")
        self._open: list[tuple[str, int]] = []
        self._text_end = -1

    def see(self, found: re.Match[str]) -> None:
        """Take the next thing that has a meaning of its own."""
        match found.lastgroup:
            case "text":
                self._quoted(found)
            case "bracket":
                self._bracket(found)
            case "end":
                self._statement_end(found)
            case "comment":
                self._refuse(found, "comments are not taken: parsers end them differently")
            case "open":
                self._refuse(found, "the text that begins here does not end")
            case _:
                self._refuse(found, "this character is taken between quotes only")

    def finish(self) -> None:
        """See to it that nothing is left open."""
        if self._open:
            bracket, at = self._open[-1]
            raise self._text.refused(PARSE_ERROR, f"{bracket!r} is not closed", at, at + 1)

    def _refuse(self, found: re.Match[str], problem: str) -> None:
        raise self._text.refused(PARSE_ERROR, problem, *found.span())

    def _quoted(self, found: re.Match[str]) -> None:
        if found.start() == self._text_end:
            self._refuse(
                found, "two texts meet here: write a quote within the other kind of quotes"
            )
        for escape in re.finditer(r"\\.", found[0][:-1], re.DOTALL):
            after = found[0][escape.end() : escape.end() + 1]
            if escape[0] not in _ESCAPES or (escape[0] == "\\\\" and after in (*_QUOTES, "")):
                self._refuse(found, r"of escapes only \\, \n and \t are read everywhere alike")
        if "\0" in found[0] or (found[0][0] == "`" and found[0] == "``"):
            self._refuse(found, "a name or a text holds what no parser takes")
        self._text_end = found.end()
        self.bare[found.start() : found.end()] = " " * len(found[0])

    def _bracket(self, found: re.Match[str]) -> None:
        bracket = found[0]
        if bracket not in _CLOSING:
            self._open.append((bracket, found.start()))
            if len(self._open) > DEEPEST:
                self._refuse(found, f"brackets are nested deeper than {DEEPEST} levels")
        elif not self._open or self._open.pop()[0] != _CLOSING[bracket]:
            self._refuse(found, f"{bracket!r} closes nothing")

    def _statement_end(self, found: re.Match[str]) -> None:
        if found.string[found.end() :].strip():
            problem = "one statement only is taken"
            raise self._text.refused("multiple-statements", problem, *found.span())
