"""Summarise entries with a function of the operator, and check what it returns."""

from __future__ import annotations

from collections.abc import Sequence

from slumberd.hygiene.entries import Entry, Summary, SummaryFailure
from slumberd.hygiene.summary import estimate, summary_of
from slumberd.model.extraction import Turn
from slumberd.model.rule import RuleFunction


def summarise_by_function(
    function: RuleFunction, entries: Sequence[Entry], turns: Sequence[Turn], *, max_tokens: int
) -> Summary | SummaryFailure:
    """Return the summary that a function writes, or why there is none.

    Args:
        function: Takes turns and a number of tokens, and returns a text.
        entries: At least one, oldest first.
        turns: The text of each entry.
        max_tokens: The most tokens of the summary, as `estimate` counts them.
    """
    try:
        text = function.call([*turns], max_tokens)
    except (Exception, SystemExit) as error:  # noqa: BLE001 - the function may raise anything
        # The message of the exception may quote the episodes.
        reason = f"raised {type(error).__name__}"
    else:
        reason = _find_problem(text, max_tokens)
        if not reason:
            return summary_of(entries, text, estimate(text))
    return SummaryFailure(tuple(entry.id for entry in entries), reason)


def _find_problem(text: object, max_tokens: int) -> str:
    """Return what is wrong with a text; empty when it is a summary."""
    if not isinstance(text, str):
        return f"returned a value of type {type(text).__name__}, not text"
    if not text.strip():
        return "returned an empty text"
    if any("\ud800" <= character <= "\udfff" for character in text):
        return "returned a text that is not valid Unicode"
    if (tokens := estimate(text)) > max_tokens:
        return f"returned {tokens} tokens; max_tokens is {max_tokens}"
    return ""
