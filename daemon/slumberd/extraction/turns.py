"""Arrange turns of conversations, and the triples found in them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from slumberd.extraction.sentences import replace_surrogates
from slumberd.model.extraction import MAX_EXTRACTED, Extracted, Turn
from slumberd.model.fact_ids import canonical


def name_of_speaker(turn: Turn, speakers: Mapping[str, str]) -> str:
    """Return the name of the speaker of a turn.

    Args:
        turn: The turn.
        speakers: The names, by the speaker of a turn. ``{user}`` and ``{agent}`` mean the user and
            the agent of the turn. Other speakers keep theirs.
    """
    name = speakers.get(turn.speaker, turn.speaker)
    return replace_surrogates({"{user}": turn.user, "{agent}": turn.agent}.get(name, name))


def previous_turns(turns: Sequence[Turn]) -> list[Turn | None]:
    """Return for each turn the last earlier turn of another speaker in the same session.

    Turns are earlier by instant, then by id. Other sessions have no effect.

    Args:
        turns: The turns, in any order.
    """
    latest: dict[str, Turn] = {}
    latest_of_others: dict[str, Turn | None] = {}
    previous: list[Turn | None] = [None] * len(turns)
    for number in sorted(range(len(turns)), key=lambda n: (turns[n].at, turns[n].id)):
        turn = turns[number]
        last = latest.get(turn.session)
        if last is not None and last.speaker != turn.speaker:
            latest_of_others[turn.session] = last
        previous[number] = latest_of_others.get(turn.session)
        latest[turn.session] = turn
    return previous


def arrange(found: Iterable[Extracted]) -> list[Extracted]:
    """Return triples in the order of the text, without repetition, at most `MAX_EXTRACTED`.

    Of equal triples with equal intent the first one remains.
    """
    first: dict[tuple[str, str, str, str], Extracted] = {}
    for one in sorted(found, key=lambda one: one.span):
        key = (one.subject, one.predicate, canonical(one.object), one.intent)
        first.setdefault(key, one)
    return list(first.values())[:MAX_EXTRACTED]
