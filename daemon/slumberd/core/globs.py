"""Globs: read into an expression that takes no longer than text times glob."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NamedTuple

_STAR = "*"


class GlobProblem(ValueError):  # noqa: N818 # told of by whoever knows where the glob stands
    """A glob that cannot be read.

    Attributes:
        problem: What is wrong.
        position: Character, from 0.
    """

    def __init__(self, problem: str, position: int) -> None:
        self.problem = problem
        self.position = position
        super().__init__(problem)


class _Piece(NamedTuple):
    """What one element of a glob is: its expression, and the text when it is one of its own."""

    expression: str
    literal: str | None = None


def matcher_of(glob: str) -> Callable[[str], bool]:
    """Return what says whether a text is of a glob's shape.

    Raises:
        GlobProblem: It cannot be read.
    """
    runs: list[str] = [""]
    for piece in _pieces(glob):
        if piece.expression == _STAR:
            runs.append("")
        else:
            runs[-1] += piece.expression
    first, *others = runs
    if not others:
        return _full(first)
    *between, last = others
    # What lies between two stars is found at its first place and never looked for again: atomic.
    found = "".join(f"(?>.*?{run})" for run in between if run)
    return _full(f"{first}{found}.*{last}")


def _full(expression: str) -> Callable[[str], bool]:
    match = re.compile(expression, re.DOTALL).fullmatch
    return lambda text: match(text) is not None


def literal_start(glob: str) -> tuple[str, bool]:
    """Return the text that a glob begins with, and whether that is all of it.

    Raises:
        GlobProblem: It cannot be read.
    """
    start = ""
    for piece in _pieces(glob):
        if piece.literal is None:
            return start, False
        start += piece.literal
    return start, True


def _pieces(glob: str) -> list[_Piece]:
    found = []
    place = 0
    while place < len(glob):
        piece, place = _piece(glob, place)
        found.append(piece)
    return found


def _piece(glob: str, place: int) -> tuple[_Piece, int]:
    match glob[place]:
        case "*":
            return _Piece(_STAR), place + 1
        case "?":
            return _Piece("."), place + 1
        case "[":
            return _class(glob, place)
        case character:
            return _Piece(re.escape(character), character), place + 1


def _class(glob: str, start: int) -> tuple[_Piece, int]:
    place = start + 1
    negated = glob[place : place + 1] in ("!", "^")
    place += negated
    # A bracket that comes first stands for itself.
    end = glob.find("]", place + 1)
    if end < 0:
        raise GlobProblem("'[' has no ']'; write '[[]' for the character itself", start)
    members = _members(glob, place, end)
    if len(members) == 1 and not negated and isinstance(members[0], str):
        return _Piece(re.escape(members[0]), members[0]), end + 1
    inside = "".join(map(_member, members))
    return _Piece(f"[{'^' if negated else ''}{inside}]"), end + 1


_Member = str | tuple[str, str]


def _members(glob: str, place: int, end: int) -> list[_Member]:
    """Return the characters of a class, and of its ranges both ends."""
    found: list[_Member] = []
    while place < end:
        if place + 2 < end and glob[place + 1] == "-":
            low, high = glob[place], glob[place + 2]
            if low > high:
                raise GlobProblem(f"{low}-{high} is no range: it ends before it begins", place)
            found.append((low, high))
            place += 3
        else:
            found.append(glob[place])
            place += 1
    return found


def _member(member: _Member) -> str:
    if isinstance(member, str):
        return re.escape(member)
    return "-".join(map(re.escape, member))
