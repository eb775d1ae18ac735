"""Faults of files of named SQL statements."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from tests.mutation.changes import Change

_STATEMENT = re.compile(
    r"^-- (?:name|part): (\w+)\n(.*?)(?=^-- (?:name|part): |\Z)", re.MULTILINE | re.DOTALL
)
_COMMENT = re.compile(r"--[^\n]*")
_STRING = re.compile(r"'(?:[^']|'')*'")

_SOMETHING = r"(?!(?<=SELECT )1\n|(?<=WHERE )1\))"
"""Not a 1 that only says that there is a row, or that counts every row."""

_Replacement = str | Callable[[re.Match[str]], str]

_FAULTS: list[tuple[str, str, _Replacement]] = [
    ("boundary", r"(?<=[\w)'] )<=(?= )", "<"),
    ("boundary", r"(?<=[\w)'] )>=(?= )", ">"),
    ("boundary", r"(?<=[\w)'] )<(?= )", "<="),
    ("boundary", r"(?<=[\w)'] )>(?= )", ">="),
    ("comparison", r"(?<=[\w)'] )=(?= )", "<>"),
    ("comparison", r"(?<=[\w)'] )<>(?= )", "="),
    ("comparison", r"(?<=[\w)'] )<=?(?= )", ">"),
    ("comparison", r"(?<=[\w)'] )>=?(?= )", "<"),
    ("and or", r"(?<!BETWEEN )\bAND\b(?! NULL)", "OR"),
    ("and or", r"\bOR\b(?! (?:IGNORE|REPLACE|ABORT|FAIL|ROLLBACK))", "AND"),
    ("not removed", r"\bNOT (?=EXISTS|IN\b|GLOB|LIKE|\()", ""),
    ("condition dropped", r"(?<=\n)( *)(?:AND|OR) [^\n()]+(?=\n|$)", ""),
    ("condition dropped", r"(?<=\bWHERE )[^\n()]+(?=\n|$)", "true"),
    ("condition dropped", r"(?<=\bHAVING )[^\n()]+(?=\n|$)", "true"),
    ("null", r"\bIS NULL\b", "IS NOT NULL"),
    ("null", r"\bIS NOT NULL\b", "IS NULL"),
    ("null", r"\bIS NOT (?!NULL)", "<> "),
    ("null", r"\bIS (?!NULL|NOT)", "= "),
    ("null", r"(?i)\b(?:coalesce|ifnull)\(([^(),]+), [^(),]+\)", r"\1"),
    ("null", r" NOT NULL(?=,|\n)", ""),
    ("order", r"\bDESC\b", "ASC"),
    ("order", r"\bASC\b", "DESC"),
    ("order", r"(?<=\bORDER BY )[\w.]+(?=\n|,|\)|$)", r"\g<0> DESC"),
    ("order", r"(?<=\bORDER BY )([^\n()]+), [^\n(),]+(?=\n|\)|$)", r"\1"),
    ("limit", r"\n *LIMIT [^\n)]+(?=\n|$)", ""),
    ("limit", r"(?<=\bLIMIT )[:\w]+", r"\g<0> + 1"),
    ("distinct", r"\bDISTINCT ", ""),
    ("distinct", r"\bUNION ALL\b", "UNION"),
    ("distinct", r"\bUNION\b(?! ALL)", "UNION ALL"),
    ("aggregate", r"\bmax\(", "min("),
    ("aggregate", r"\bmin\(", "max("),
    ("join", r"\bLEFT JOIN\b", "JOIN"),
    ("column dropped from key", r"(?<=\bPRIMARY KEY \()([^(),]+), [^()]+(?=\))", r"\1"),
    ("column dropped from key", r"(?<=\bPRIMARY KEY \()[^(),]+, ([^()]+)(?=\))", r"\1"),
    ("conflict", r"\bINSERT OR (?:IGNORE|REPLACE)\b", "INSERT"),
    ("conflict", r"\n *ON CONFLICT DO NOTHING", ""),
    ("conflict", r"\bDO UPDATE SET [^\n()]+(?=\n|$)", "DO NOTHING"),
    ("assignment dropped", r"(?<=\bSET )[^\n(),]+, ", ""),
    ("assignment dropped", r"(?<=, )\w+ = [^\n(),]+, ", ""),
    ("assignment dropped", r",\s+\w+ = [^\n(),]+(?=\nWHERE)", ""),
    ("constant", rf"(?<![\w:.$']){_SOMETHING}\d+(?![\w.'])", lambda found: str(int(found[0]) + 1)),
    ("constant", r"'[^'\n]+'", "''"),
    ("constant", r"''", "'x'"),
    ("arithmetic", r"(?<=[\w)] )\+(?= [\w(:])", "-"),
    ("arithmetic", r"(?<=[\w)] )-(?= [\w(:])", "+"),
    ("arithmetic", r"(?<= )<<(?= )", ">>"),
    ("arithmetic", r"(?<= )\|(?= )", "&"),
    ("arithmetic", r"(?<= )&(?= )", "|"),
    ("case", r"\bELSE [^\n()]+(?= END)", "ELSE NULL"),
]
_PATTERNS = [(kind, re.compile(pattern), text) for kind, pattern, text in _FAULTS]
_IN_STRINGS = ("constant",)


def changes(source: str) -> Iterator[Change]:
    """Yield every fault of a file; indexes are left out, because they change speed only."""
    for statement in _STATEMENT.finditer(source):
        start, end = statement.span(2)
        if not statement[2].lstrip().startswith("CREATE INDEX"):
            yield from _changes_of(source, start, end)


def _changes_of(source: str, start: int, end: int) -> Iterator[Change]:
    comments = [found.span() for found in _COMMENT.finditer(source, start, end)]
    strings = [found.span() for found in _STRING.finditer(source, start, end)]
    for kind, pattern, text in _PATTERNS:
        hidden = comments if kind in _IN_STRINGS else comments + strings
        for found in pattern.finditer(source, start, end):
            if not any(begin <= found.start() < close for begin, close in hidden):
                new = text(found) if callable(text) else found.expand(text)
                yield Change(found.start(), found.end(), new, kind)
