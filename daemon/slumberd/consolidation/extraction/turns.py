"""Arrange turns of conversations, and the triples found in them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from slumberd.consolidation.extraction.sentences import replace_surrogates
from slumberd.model.episode import INTERFACES, PROGRAM_ROLES
from slumberd.model.extraction import MAX_EXTRACTED, Extracted, Turn
from slumberd.model.scope import canonical


def name_of_speaker(turn: Turn, speakers: Mapping[str, str]) -> str:
    """Return what a rule calls the speaker of a turn; empty when nobody is known to have spoken.

    Args:
        speakers: The names, by the speaker of a turn. ``{user}`` and ``{agent}`` mean the user and
            the agent of the turn. Other speakers keep theirs; the person is ``{user}``.
    """
    entry = _entry_of(turn, speakers)
    return replace_surrogates(turn.speaker) if entry is None else _filled(entry, turn)


def name_of_node(turn: Turn, speakers: Mapping[str, str]) -> str:
    """Return what slumberd 0.2.0 called the speaker of a turn: there the ``source_node`` spoke.

    Args:
        speakers: As of `name_of_speaker`.
    """
    return _filled(speakers.get(turn.source_node, turn.source_node), turn)


def _entry_of(turn: Turn, speakers: Mapping[str, str]) -> str | None:
    """Return the entry of a speaker; None when the speaker has the own name."""
    if turn.speaker in speakers:
        return speakers[turn.speaker]
    # Rules of 0.2.0 could name only the interface, and never meant that a program is the person.
    if turn.source_node in INTERFACES & speakers.keys() and not _is_program(turn):
        return speakers[turn.source_node]
    return "{user}" if turn.is_person else None


def _is_program(turn: Turn) -> bool:
    return turn.speaker == turn.agent or turn.speaker.casefold() in PROGRAM_ROLES


def _filled(name: str, turn: Turn) -> str:
    return replace_surrogates({"{user}": turn.user, "{agent}": turn.agent}.get(name, name))


def previous_turns(turns: Sequence[Turn]) -> list[Turn | None]:
    """Return for each turn the last earlier turn of another speaker in the same session.

    Turns are earlier by instant, then by id. Other sessions have no effect. A turn of nobody known
    has none before it, and is before none.

    Args:
        turns: The turns, in any order.
    """
    latest: dict[str, Turn] = {}
    latest_of_others: dict[str, Turn | None] = {}
    previous: list[Turn | None] = [None] * len(turns)
    for number in sorted(range(len(turns)), key=lambda n: (turns[n].at, turns[n].id)):
        turn = turns[number]
        if not turn.speaker:
            continue
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
    first: dict[tuple[object, ...], Extracted] = {}
    for one in sorted(found, key=lambda one: one.span):
        what = (canonical(one.object), one.object_words, one.replaces)
        key = (one.subject, one.predicate, one.intent, *what)
        first.setdefault(key, one)
    return list(first.values())[:MAX_EXTRACTED]
