"""Follow a transcript line by line: which turns are new, copies, taken back, or to be forgotten.

Reads no file. What it knows of the lines before is kept beside the cursor, as JSON.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from functools import lru_cache
from typing import Any, NamedTuple

from slumberd.integrations.hooks.transcripts import PERSON, TranscriptLine, TranscriptTurn, hash_of
from slumberd.model.capture.secrets import mask_text

MOST_KINDS = 20
"""So many kinds of unknown lines are counted by name; the others together."""

_OTHERS = "others"
_CHARACTERS_OF_KIND = 60
_BURST_SECONDS = 1.0
"""A program writes the lines of a copied history at once; a person takes longer."""

_CHARACTERS_OF_NAME = 12
_NEAR_TURNS = 64
"""A line may repeat one of this many latest turns of its speaker, in another form."""


def _unknown_names(_: str) -> None:
    """Return nothing: no other session is known."""


class TurnStep(NamedTuple):
    """What is to be done with a turn.

    Attributes:
        offset: Where its line begins in the transcript.
        turn: The turn; None when its line is to be read again.
        number: The number of the turn in the transcript.
        is_copy: Whether a session before it has the turn too, so a stored one stays.
        withdrawn: Whether its speaker took it back; None when that has not changed.
    """

    offset: int
    turn: TranscriptTurn | None
    number: int
    is_copy: bool = False
    withdrawn: bool | None = None


class _Node(NamedTuple):
    """A turn in the tree of the conversation.

    Attributes:
        offset: Where its line begins.
        before: The number of the turn that it answers; -1 for none.
        is_typed: Whether it is a turn of a person after which the conversation branches.
        is_copy: Whether it belongs to another session.
        name: A name of who said what.
        place: The name of the message that it answers; empty when unknown.
    """

    offset: int
    before: int
    is_typed: bool
    is_copy: bool
    name: str
    place: str

    @property
    def is_of_person(self) -> bool:
        """Whether a person said it."""
        return self.name.startswith(PERSON[0])


class _Waiting(NamedTuple):
    """A turn that another line near it may repeat in the form that counts."""

    line: TranscriptLine
    offset: int
    copying: str


class TranscriptHistory:
    """What is known of the lines of a transcript that were read.

    Args:
        known: What `document` returned after the lines before; empty at the beginning.
        names_in: Returns the names of the turns of another session; None when it is unknown.
    """

    def __init__(
        self,
        known: dict[str, Any],
        names_in: Callable[[str], Sequence[str] | None] = _unknown_names,
    ) -> None:
        self._names_in = names_in
        self._originals: list[str] | None = known.get("originals")
        self._nodes = [_Node(*node) for node in known.get("nodes", ())]
        # Of each line the number of its turn, and the name of its message unless that is its own.
        self._beside: dict[str, list[int]] = {}
        self._forks = False
        for number in range(len(self._nodes)):
            self._set_beside(number)
        self._places: dict[str, int | list[Any]] = dict(known.get("places", {}))
        self._withdrawn: set[int] = set(known.get("withdrawn", ()))
        self._forgotten: set[int] = set(known.get("forgotten", ()))
        self._tip: int = known.get("tip", -1)
        self._thread: list[Any] = list(known.get("thread", ()))
        self._copying: str = known.get("copying", "")
        self._repeated: int = known.get("repeated", 0)
        self._last: float | None = known.get("last")
        self._put: list[str] = list(known.get("put", ()))
        self._early: list[list[Any]] = [list(one) for one in known.get("early", ())]
        self._counts: Counter[str] = Counter(known.get("counts", {}))
        self._unknown: Counter[str] = Counter(known.get("unknown", {}))
        self._version: str = known.get("version", "")
        self._waiting: list[_Waiting] = []

    def document(self) -> dict[str, Any]:
        """Return what is known, as JSON; nothing may be waiting."""
        return {
            "nodes": self._nodes,
            "places": self._places,
            "withdrawn": sorted(self._withdrawn),
            "forgotten": sorted(self._forgotten),
            "tip": self._tip,
            "thread": self._thread,
            "copying": self._copying,
            "originals": self._originals if self._copying else None,
            "repeated": self._repeated,
            "last": self._last,
            "put": self._put,
            "early": self._early,
            "counts": self._counts,
            "unknown": self._unknown,
            "version": self._version,
        }

    def counts(self) -> dict[str, Any]:
        """Return how many lines were read, and what of them is not known."""
        return {
            "agent_version": self._version,
            "lines": self._counts["lines"],
            "person": self._counts["person"],
            "assistant": self._counts["assistant"],
            "unknown": dict(self._unknown),
        }

    @property
    def is_waiting(self) -> bool:
        """Whether a turn waits for the line that may repeat it."""
        return bool(self._waiting)

    @property
    def forgotten(self) -> frozenset[int]:
        """The numbers of the turns that a person asked to forget, and of the replies to them."""
        return frozenset(self._forgotten)

    def keep_forgotten(self, numbers: Iterable[int]) -> None:
        """Take over what is to be forgotten, after the same lines were read again."""
        self._forgotten.update(number for number in numbers if number < len(self._nodes))

    def forget(self, number: int, *, also_before: bool) -> list[TurnStep]:
        """Return what is to be forgotten when the person asks for it: turns, and replies to them.

        Args:
            number: The turn in which the person asks.
            also_before: Whether the person's turn before goes, too.
        """
        found = {number}
        before = self._turn_before(number) if also_before else -1
        if before >= 0:
            found.add(before)
        self._forgotten |= found
        for index in range(min(found) + 1, len(self._nodes)):
            if self._is_forgotten_reply(index):
                found.add(index)
                self._forgotten.add(index)
        return [TurnStep(self._nodes[index].offset, None, index) for index in sorted(found)]

    def _turn_before(self, number: int) -> int:
        """Return the person's turn before another one in its branch; -1 when there is none."""
        last = self._answered_by(number)
        while last >= 0 and not self._nodes[last].is_of_person:
            last = self._answered_by(last)
        return last

    def _is_forgotten_reply(self, number: int) -> bool:
        is_reply = not self._nodes[number].is_of_person
        return is_reply and self._answered_by(number) in self._forgotten

    def _answered_by(self, number: int) -> int:
        """Return the turn that one answers: the one before it where its line names none."""
        before = self._nodes[number].before
        return before if before >= 0 else number - 1

    def count_unreadable(self) -> None:
        """Count a line that cannot be read."""
        self._counts["lines"] += 1
        self._count_unknown(("unreadable",))

    def add(self, line: TranscriptLine, offset: int) -> list[TurnStep]:
        """Take the next line, and return what is to be done, in order.

        Args:
            line: What it says.
            offset: Where it begins.
        """
        self._counts["lines"] += 1
        self._count_unknown(line.unknown)
        self._version = line.version[:_CHARACTERS_OF_KIND] or self._version
        self._counts["person"] += line.is_command
        self._follow_copies(line)
        if line.rolled_back > 0:
            return [*self.flush(), *self._roll_back(line.rolled_back)]
        if line.is_boundary:
            self._put.clear()
            return self.flush()
        if line.inserted is not None:
            return self._leave_out(line)
        if line.turn is None or not self._is_of_person():
            if line.turn is not None and self._thread[3]:
                # Nobody knows whose words these are, so a thread without a person is reported.
                self._count_unknown((self._thread[3],))
                self._counts["assistant"] += line.turn.speaker != PERSON
            if line.is_wordless and self._is_of_person() and not self._copying:
                return [*self.flush(), *self._take_wordless(line, offset)]
            self._place(line, self._node_before(line))
            return []
        name = _name_of(line.turn)
        if self._is_repeated(line, name):
            return []
        return self._add_spare(line, offset, name) if line.is_spare else self._add(line, offset)

    def flush(self) -> list[TurnStep]:
        """Take the turns that wait: nothing repeats them any more."""
        waiting, self._waiting = self._waiting, []
        steps: list[TurnStep] = []
        for one in waiting:
            if one.line.turn is not None:
                number = len(self._nodes)
                steps += self._take(one)
                self._early.append([_name_of(one.line.turn), number])
        return steps

    def _count_unknown(self, kinds: Iterable[str]) -> None:
        for kind in kinds:
            name = "".join(c if c.isprintable() else "?" for c in kind)[:_CHARACTERS_OF_KIND]
            is_new = name not in self._unknown and len(self._unknown) >= MOST_KINDS
            self._unknown[_OTHERS if is_new else name] += 1

    def _is_of_person(self) -> bool:
        return not self._thread or bool(self._thread[1])

    def _follow_copies(self, line: TranscriptLine) -> None:
        """Note where a copied history begins and ends.

        A fork, and a resumed session of some versions, repeat an older history. They write it at
        once, with the instants of the copy.
        """
        at = _seconds_of(line.at)
        if line.thread is not None:
            if not self._thread:
                began = _seconds_of(line.thread.at)
                self._thread = [
                    line.thread.id,
                    line.thread.is_of_person,
                    began,
                    line.thread.unknown,
                ]
                if line.thread.is_copy:
                    self._begin_copy(line.thread.original)
            elif line.thread.id == self._thread[0]:
                self._copying, self._repeated = "own", 0
            else:
                self._begin_copy(line.thread.id)
        elif self._copying and self._ends_copy(line, at):
            self._copying = ""
        self._last = at if at is not None else self._last

    def _begin_copy(self, session: str) -> None:
        names = self._names_in(session)
        # A fork of a fork copies turns of both; if a hook read only one, nobody knows them all.
        known = self._originals if self._copying == "other" else []
        is_known = known is not None and names is not None
        self._originals = [*(known or ()), *(names or ())] if is_known else None
        self._copying = "other"

    def _ends_copy(self, line: TranscriptLine, at: float | None) -> bool:
        began = self._thread[2]
        if at is not None and began is not None and at < began:
            return False  # some versions keep the instants of what they copy
        if line.began is not None and began is not None and line.began >= int(began):
            return True
        return at is not None and self._last is not None and at - self._last > _BURST_SECONDS

    def _leave_out(self, line: TranscriptLine) -> list[TurnStep]:
        """Leave out what a program wrote, also in another line that has the same text."""
        self._place(line, self._node_before(line))
        name = _name_of(line.inserted)
        for waiting in self._waiting:
            if _name_of(waiting.line.turn) == name:
                self._waiting.remove(waiting)
                return []
        for early in self._early:
            if early[0] == name:
                self._early.remove(early)
                return self._withdraw(self._withdrawn | {early[1]})
        self._put = [*self._put[1 - _NEAR_TURNS :], name]
        return []

    def _add_spare(self, line: TranscriptLine, offset: int, name: str) -> list[TurnStep]:
        if name in self._put:
            self._put.remove(name)
            return []
        others = any(name[0] != _name_of(one.line.turn)[0] for one in self._waiting
                     if one.line.turn is not None)  # fmt: skip
        steps = self.flush() if others else []
        self._waiting.append(_Waiting(line, offset, self._copying))
        return steps

    def _add(self, line: TranscriptLine, offset: int) -> list[TurnStep]:
        assert line.turn is not None  # noqa: S101 # the caller has looked
        name = _name_of(line.turn)
        for one in self._early:
            if one[0] == name:
                self._early.remove(one)
                self._place(line, one[1])
                return []
        self._early.clear()
        waiting = [_name_of(one.line.turn) for one in self._waiting if one.line.turn is not None]
        steps: list[TurnStep] = []
        if name in waiting:
            place = waiting.index(name)
            later = self._waiting[place + 1 :]
            self._waiting = self._waiting[:place]
            steps = self.flush()
            self._waiting = later
        else:
            steps = self.flush()
            near = self._put[1 - _NEAR_TURNS :]
            self._put = [*(other for other in near if other[0] == name[0]), name]
        self._early.clear()
        return [*steps, *self._take(_Waiting(line, offset, self._copying))]

    def _take(self, one: _Waiting) -> list[TurnStep]:
        """Put a turn into the tree, and return what that changes."""
        line, turn = one.line, one.line.turn
        assert turn is not None  # noqa: S101 # the caller has looked
        name = _name_of(turn)
        if one.copying == "own" and self._copying == "own":
            if self._repeated < len(self._nodes) and self._nodes[self._repeated].name == name:
                self._repeated += 1
                return []
            self._copying = ""
        if one.copying == "other" and self._originals is not None and name not in self._originals:
            self._copying = ""
            one = one._replace(copying="")
        number = len(self._nodes)
        before = self._node_before(line)
        is_copy = one.copying == "other" or line.copied
        place = self._place_before(line) if line.is_typed else ""
        self._nodes.append(_Node(one.offset, before, line.is_typed, is_copy, name, place))
        self._set_beside(number)
        self._place(line, number)
        self._tip = number
        if self._is_forgotten_reply(number):
            self._forgotten.add(number)
        if one.copying == "other":
            return []
        self._counts["person" if turn.speaker == PERSON else "assistant"] += 1
        withdrawn = True if before in self._withdrawn and not line.is_typed else None
        if withdrawn:
            self._withdrawn.add(number)
        first = TurnStep(one.offset, turn, number, is_copy, None if is_copy else withdrawn)
        return [first, *(self._go_to(number) if line.is_typed and line.id else ())]

    def _take_wordless(self, line: TranscriptLine, offset: int) -> list[TurnStep]:
        """Put a turn of the person without words into the tree: others may be taken back for it."""
        last = self._nodes[self._tip] if self._tip >= 0 else None
        if (line.id and _short(line.id) in self._places) or (
            not line.id and last and not last.name
        ):
            return []  # the same turn in another form, or again
        number = len(self._nodes)
        before, place = self._node_before(line), self._place_before(line)
        self._nodes.append(_Node(offset, before, True, line.copied, "", place))
        self._set_beside(number)
        self._place(line, number)
        self._tip = number
        return self._go_to(number) if line.id else []

    def _set_beside(self, number: int) -> None:
        """Note which turns of the person answer the same message."""
        node = self._nodes[number]
        if node.is_typed and node.place:
            beside = self._beside.setdefault(node.place, [])
            beside.append(number)
            self._forks = self._forks or len(beside) > 1

    def _is_repeated(self, line: TranscriptLine, name: str) -> bool:
        """Return whether the transcript had the very line before: a resumed session may do so."""
        place = self._places.get(_short(line.id), -1) if line.id else -1
        number = place if isinstance(place, int) else int(place[0])
        return number >= 0 and self._nodes[number].name == name

    def _node_before(self, line: TranscriptLine) -> int:
        if line.parent:
            place = self._places.get(_short(line.parent), -1)
            return place if isinstance(place, int) else int(place[0])
        return -1 if line.id else self._tip

    def _place_before(self, line: TranscriptLine) -> str:
        """Return the name of the message that a line answers, past the notes between them."""
        if not line.parent:
            return ""
        short = _short(line.parent)
        place = self._places.get(short, -1)
        return short if isinstance(place, int) else str(place[1])

    def _place(self, line: TranscriptLine, node: int) -> None:
        if line.id:
            before = "" if line.is_message else self._place_before(line)
            self._places[_short(line.id)] = [node, before] if before else node

    def _go_to(self, number: int) -> list[TurnStep]:
        """Return what is withdrawn and what counts again when the person speaks in a branch.

        A turn of the person is taken back when another turn of the person, on the way to the last
        one, answers the same message. So is all that follows it.
        """
        branches = [one for one in self._beside.values() if len(one) > 1] if self._forks else []
        if not branches:
            return []
        path, last = set[int](), number
        while last >= 0:
            path.add(last)
            last = self._nodes[last].before
        left = {
            index
            for branch in branches
            if path.intersection(branch)
            for index in branch
            if index not in path
        }
        return self._withdraw(self._with_followers(left))

    def _with_followers(self, numbers: set[int]) -> set[int]:
        found = set(numbers)
        for index, node in enumerate(self._nodes):
            if node.before in found:
                found.add(index)
        return found

    def _withdraw(self, now: set[int]) -> list[TurnStep]:
        """Return what changes when these turns are withdrawn, and no others."""
        before, self._withdrawn = self._withdrawn, now
        return [*self._steps(now - before, withdrawn=True),
                *self._steps(before - now, withdrawn=False)]  # fmt: skip

    def _steps(self, numbers: Iterable[int], *, withdrawn: bool) -> list[TurnStep]:
        # What is to be forgotten may not have been put, and stays forgotten in every branch.
        found = [(number, self._nodes[number]) for number in sorted(set(numbers) - self._forgotten)]
        return [
            TurnStep(node.offset, None, number, withdrawn=withdrawn)
            for number, node in found
            if node.name and not node.is_copy
        ]

    def _roll_back(self, turns: int) -> list[TurnStep]:
        """Take back the last turns of the person, and all that follows them."""
        first, node = -1, self._tip
        while node >= 0 and turns > 0:
            if self._nodes[node].is_typed:
                first, turns = node, turns - 1
            node = self._nodes[node].before
        if first < 0:
            return []
        self._tip = self._nodes[first].before
        return self._withdraw(self._withdrawn | self._with_followers({first}))


def _name_of(turn: TranscriptTurn | None) -> str:
    """Return a short name of who said what; its first character is that of the speaker."""
    return "" if turn is None else turn.speaker[0] + _name_of_text(turn.text)


@lru_cache(maxsize=128)
def _name_of_text(text: str) -> str:
    """Return a short name of a text; its secrets have no part in it."""
    return hash_of(mask_text(text).value)[:_CHARACTERS_OF_NAME]


def _short(id: str) -> str:
    return hash_of(id)[:_CHARACTERS_OF_NAME]


def _seconds_of(at: str | None) -> float | None:
    return None if at is None else datetime.fromisoformat(at).timestamp()


def names_in(known: dict[str, Any]) -> list[str]:
    """Return the names of the turns in what is known of a transcript."""
    return [_Node(*node).name for node in known.get("nodes", ())]
