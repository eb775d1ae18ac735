"""Decide which turns of a story a person's memory holds, by the rules of a mapping file.

The mapping says which rooms a turn is in, which rooms a person may read, which turns are orders to
erase, and which values are out of date. It knows nothing of the questions.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from tests.recall.stories import Checkpoint, Story, Turn

MAPPING = Path(__file__).with_name("gatemem.yaml")

HARMLESS = "harmless words"
NAME = "names of people"
OWN = "own words"
IN_FORCE = "values in force"

BEYOND = (HARMLESS, NAME, OWN, IN_FORCE)
"""Why no right can keep a value from a person."""

_EVERYTHING = "all"
_SENTENCES = re.compile(r"(?<=[.;!?]) ")
_HARMLESS = re.compile(r"yes|no|same|.{1,3}", re.IGNORECASE)
"""Targets that stand in harmless turns too."""

_DIGITS = 4
"""So many last digits of a number give it away."""

_LETTERS = 5
"""A first word with so many letters gives a name away."""


class RightsRule(NamedTuple):
    """Which rooms somebody may read; the first rule that fits counts.

    Attributes:
        rooms: The rooms; ``all`` means every room.
        roles: Of these roles only; empty for all.
        relationships: Only who is tied to the topic by one of these; empty for all.
        topic: ``self`` when the topic is the person, ``main`` for the first topic of the story,
            ``any`` for every topic.
    """

    rooms: frozenset[str]
    roles: frozenset[str]
    relationships: frozenset[str]
    topic: str


class Mapping(NamedTuple):
    """The rules of one domain.

    Attributes:
        rooms: For each room an expression; a turn is in each room whose expression it contains.
        default: The room of a turn that is in no other.
        rights: Which rooms a person may read.
        own: The roles whose own turns are in their memory, whatever room they are in.
        unsaved: A turn that contains it, by somebody outside of `own`, is in no memory.
        order: A sentence that contains it, by one of `clerks`, is an order to erase.
        unless: A sentence that contains it is no order to erase.
        values: Their groups are the values that an order names.
        beside: Finds the values that stand beside an erased name; ``NAME`` stands for the name.
        revoke: A turn that contains it takes the rights of `revocable` roles that it concerns.
        revocable: The roles that can lose their rights.
        clerks: The roles whose orders and revocations count.
        superseded: Their groups are values that are out of date from that turn on.
    """

    rooms: tuple[tuple[str, re.Pattern[str]], ...]
    default: str
    rights: tuple[RightsRule, ...]
    own: frozenset[str]
    unsaved: re.Pattern[str]
    order: re.Pattern[str]
    unless: re.Pattern[str]
    values: tuple[re.Pattern[str], ...]
    beside: tuple[str, ...]
    revoke: re.Pattern[str]
    revocable: frozenset[str]
    clerks: frozenset[str]
    superseded: tuple[re.Pattern[str], ...]


def load_mappings(path: Path = MAPPING) -> dict[str, Mapping]:
    """Read the mapping of each domain."""
    document = yaml.safe_load(path.read_text())
    return {domain: _mapping(rules) for domain, rules in document["domains"].items()}


def _mapping(rules: dict[str, Any]) -> Mapping:
    return Mapping(
        tuple((rule["room"], _pattern(rule["text"])) for rule in rules["rooms"]),
        rules["default_room"],
        tuple(_rights_rule(rule) for rule in rules["rights"]),
        frozenset(rules["own_turns"]["roles"]),
        _pattern(rules["unsaved"]["text"]),
        _pattern(rules["erase"]["order"]),
        _pattern(rules["erase"]["unless"]),
        tuple(_pattern(rule["text"]) for rule in rules["erase"]["values"]),
        tuple(rule["text"] for rule in rules["erase"].get("beside", ())),
        _pattern(rules["revoke"]["text"]),
        frozenset(rules["revoke"]["roles"]),
        frozenset(rules["clerks"]["roles"]),
        tuple(_pattern(rule["text"]) for rule in rules["superseded"]),
    )


def _rights_rule(rule: dict[str, Any]) -> RightsRule:
    return RightsRule(
        frozenset(rule["rooms"]),
        frozenset(rule.get("roles", ())),
        frozenset(rule.get("relationships", ())),
        rule.get("topic", "any"),
    )


def _pattern(text: str) -> re.Pattern[str]:
    return re.compile(" ".join(text.split()))


class Archive:
    """The turns of one story, and who may read each of them."""

    def __init__(self, story: Story, mapping: Mapping) -> None:
        self._story, self._mapping = story, mapping
        self._topics = story.topics()
        self._names = {id: _name_pattern(name) for id, name in self._topics.items()}
        self._places = [(self._topics_of(turn), self._rooms_of(turn)) for turn in story.turns]
        self._erased = list(self._erasures())
        self._superseded = list(self._supersessions())

    def memory_of(self, person: str, count: int) -> list[Turn]:
        """Return what a person's memory holds after a number of turns."""
        revoked = self._revoked_at(person, count)
        return [
            turn
            for turn in self._story.turns[:count]
            if (self._is_own(person, turn) or (revoked is None and self._may_read(person, turn)))
            and (revoked is None or turn.number > revoked)
            and not self._is_unsaved(turn)
            and not self._is_erased(turn, count)
            and not self.is_superseded(turn, count)
        ]

    def is_superseded(self, turn: Turn, count: int) -> bool:
        """Return whether a turn states a value that a later turn has replaced."""
        topics, _ = self._places[turn.number]
        return any(
            turn.number < number < count
            and topics & self._places[number][0]
            and contains(turn.text, value)
            for number, value in self._superseded
        )

    def _is_own(self, person: str, turn: Turn) -> bool:
        return turn.speaker == person and turn.role in self._mapping.own

    def _is_unsaved(self, turn: Turn) -> bool:
        return turn.role not in self._mapping.own and bool(self._mapping.unsaved.search(turn.text))

    def reason_beyond(self, checkpoint: Checkpoint, target: str) -> str:
        """Return why no right can keep a target from a person; empty when one can.

        It is one of `BEYOND`.
        """
        if _HARMLESS.fullmatch(target):
            return HARMLESS
        if self._is_value_erased(target, checkpoint.said):
            return ""
        said = (turn for turn in self._story.turns if self._is_own(checkpoint.asker, turn))
        if any(person.name == target for person in self._story.people.values()):
            return NAME
        if self._is_demanded(checkpoint.asker, target):
            return IN_FORCE
        if any(contains(turn.text, target) for turn in said):
            return OWN
        return ""

    def _is_demanded(self, person: str, target: str) -> bool:
        """Return whether a person with all rights is to be told a value that contains it."""
        main = next(iter(self._topics))
        if not self._may_read_rooms(person, main, frozenset({_EVERYTHING})):
            return False
        wanted = (text for one in self._story.checkpoints for text in one.include)
        return any(target.lower() in text.lower() for text in wanted)

    def _may_read(self, person: str, turn: Turn) -> bool:
        topics, rooms = self._places[turn.number]
        return all(self._may_read_rooms(person, topic, rooms) for topic in topics)

    def _may_read_rooms(self, person: str, topic: str, rooms: frozenset[str]) -> bool:
        for rule in self._mapping.rights:
            if self._fits(rule, person, topic):
                return _EVERYTHING in rule.rooms or rooms <= rule.rooms
        return False

    def _fits(self, rule: RightsRule, person: str, topic: str) -> bool:
        if rule.roles and self._story.people[person].role not in rule.roles:
            return False
        ties = {
            tie.kind
            for tie in self._story.relationships
            if tie.person == person and tie.topic == topic
        }
        if rule.relationships and not ties & rule.relationships:
            return False
        match rule.topic:
            case "self":
                return topic == person
            case "main":
                return topic == next(iter(self._topics))
            case _:
                return True

    def _topics_of(self, turn: Turn) -> frozenset[str]:
        """Return the topics that a turn names; else those of its speaker; else the main one."""
        named = {id for id, pattern in self._names.items() if pattern.search(turn.text)}
        tied = {tie.topic for tie in self._story.relationships if tie.person == turn.speaker}
        own = {turn.speaker} & self._names.keys() or tied & self._names.keys()
        return frozenset(named or own or list(self._names)[:1])

    def _rooms_of(self, turn: Turn) -> frozenset[str]:
        rooms = {room for room, pattern in self._mapping.rooms if pattern.search(turn.text)}
        return frozenset(rooms or {self._mapping.default})

    def _erasures(self) -> Iterator[tuple[int, str]]:
        """Yield each value that an order erases, with the number of the order."""
        for turn in self._story.turns:
            for value in self._named_values(turn):
                for part in _telling_parts(value):
                    yield turn.number, part

    def _named_values(self, turn: Turn) -> set[str]:
        """Return the values that the orders of a turn name, and those that stood beside them."""
        orders = [sentence for sentence in _SENTENCES.split(turn.text) if self._is_order(sentence)]
        if not orders or turn.role not in self._mapping.clerks:
            return set()
        named = {value for order in orders for value in _groups(self._mapping.values, order)}
        earlier = [turn.text for turn in self._story.turns[: turn.number + 1]]
        for name in tuple(named):
            texts = [text.replace("NAME", re.escape(name)) for text in self._mapping.beside]
            patterns = [_pattern(text) for text in texts]
            named |= {value for text in earlier for value in _groups(patterns, text)}
        return named

    def _is_order(self, sentence: str) -> bool:
        return bool(self._mapping.order.search(sentence)) and not self._mapping.unless.search(
            sentence
        )

    def _is_erased(self, turn: Turn, count: int) -> bool:
        return any(number < count and contains(turn.text, value) for number, value in self._erased)

    def _is_value_erased(self, value: str, count: int) -> bool:
        return any(
            number < count and (contains(value, erased) or contains(erased, value))
            for number, erased in self._erased
        )

    def _supersessions(self) -> Iterator[tuple[int, str]]:
        for turn in self._story.turns:
            for value in _groups(self._mapping.superseded, turn.text):
                yield turn.number, value

    def _revoked_at(self, person: str, count: int) -> int | None:
        """Return the number of the last turn that took a person's rights; None without one."""
        if self._story.people[person].role not in self._mapping.revocable:
            return None
        numbers = [
            turn.number
            for turn in self._story.turns[:count]
            if turn.role in self._mapping.clerks and self._mapping.revoke.search(turn.text)
        ]
        return numbers[0] if numbers else None


def _telling_parts(value: str) -> Iterator[str]:
    """Yield a value, and the parts that give it away."""
    yield value
    if value[-_DIGITS:].isdecimal():
        yield value[-_DIGITS:]
    first, _, rest = value.partition(" ")
    if rest and first[0].isupper() and len(first) >= _LETTERS:
        yield first


@cache
def _value_pattern(value: str) -> re.Pattern[str]:
    return re.compile(rf"(?<![\w]){re.escape(value)}(?![\w])", re.IGNORECASE)


def contains(text: str, value: str) -> bool:
    """Return whether a text contains a value as whole words, in any case."""
    return bool(_value_pattern(value).search(text))


def _name_pattern(name: str) -> re.Pattern[str]:
    """Return an expression for a name, or for its first word."""
    return re.compile(rf"\b{re.escape(name.split()[0])}\b")


def _groups(patterns: Sequence[re.Pattern[str]], text: str) -> Iterator[str]:
    for pattern in patterns:
        for found in pattern.finditer(text):
            yield from (group for group in found.groups() if group)
