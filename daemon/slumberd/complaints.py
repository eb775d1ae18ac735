"""What YAML's parser complains of, in words that say what to do about it."""

from __future__ import annotations

from typing import NamedTuple


class Complaint(NamedTuple):
    """What is wrong.

    Attributes:
        words: What is wrong, and what to write instead.
        at_its_start: Whether to mend it where the parser began on it, not where it gave up.
        unquoted: Whether a value lacks its quotes and nothing else; what follows can be read.
    """

    words: str
    at_its_start: bool = False
    unquoted: bool = False


# The first is taken whose sign the parser's own words hold.
_COMPLAINTS = (
    (
        "scanning an alias",
        Complaint(
            "a value that begins with '*' must be quoted; a cron expression as \"*/5 * * * *\"",
            at_its_start=True,
            unquoted=True,
        ),
    ),
    (
        "character '@'",
        Complaint("a value that begins with '@' must be quoted, as \"@daily\"", unquoted=True),
    ),
    (
        "character '%'",
        Complaint("a value that begins with '%' must be quoted", unquoted=True),
    ),
    (
        "character '`'",
        Complaint("a value that begins with '`' must be quoted", unquoted=True),
    ),
    (r"character '\t'", Complaint("a tab stands where YAML wants spaces")),
    (
        "mapping values are not allowed",
        Complaint(
            "no ':' can stand here: quote the value, or mend the indentation here or in the line"
            " above"
        ),
    ),
    (
        "quoted scalar",
        Complaint(
            "the quoted text that begins here is not well formed, or never ends", at_its_start=True
        ),
    ),
    (
        "flow sequence",
        Complaint("the '[' has no matching ']'; ',' goes between entries", at_its_start=True),
    ),
    (
        "flow node",
        Complaint("a value, or the closing bracket, is missing here", at_its_start=True),
    ),
    (
        "flow mapping",
        Complaint("the '{' has no matching '}'; ',' goes between entries", at_its_start=True),
    ),
    (
        "could not find expected ':'",
        Complaint("a ':' and a space are missing after this key", at_its_start=True),
    ),
    (
        "parsing a block",
        Complaint("this does not fit here: mend the indentation, or quote the whole value"),
    ),
)


def complaint(said: str) -> Complaint:
    """Return what to tell instead of the parser's own words."""
    known = (complaint for sign, complaint in _COMPLAINTS if sign in said)
    return next(known, Complaint(f"not YAML: {said.strip()}"))
