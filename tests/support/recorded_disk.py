"""A disk that records its operations, so that a test can cut the power after each of them.

After a cut the disk holds all that was synced. Each sector that was not synced may be old, new or
torn. A file may be missing, and a deleted file may be back, when its directory was not synced.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

SECTOR = 512

Fate = Literal["none", "all", "some"]
"""How much reached the disk of what was not synced."""


@dataclass(frozen=True)
class Write:
    """Bytes for a file."""

    file: int
    offset: int
    data: bytes


@dataclass(frozen=True)
class Truncate:
    """Another size for a file."""

    file: int
    size: int


@dataclass(frozen=True)
class Sync:
    """The earlier steps on a file are on the disk."""

    file: int


@dataclass(frozen=True)
class Entry:
    """A name refers to another file, or to none when it is deleted."""

    name: str
    file: int | None


@dataclass(frozen=True)
class SyncEntries:
    """The earlier changes of names are on the disk."""


@dataclass(frozen=True)
class Acknowledged:
    """A caller was promised something, and may rely on it."""

    what: Any


Step = Write | Truncate | Sync | Entry | SyncEntries | Acknowledged


@dataclass
class Disk:
    """What was done to the files of a directory, oldest first."""

    steps: list[Step] = field(default_factory=list)
    _names: dict[str, int] = field(default_factory=dict)
    _files: int = 0

    def open(self, name: str) -> int:
        """Return the number of the file of that name; create it when there is none."""
        if name not in self._names:
            self._files += 1
            self._names[name] = self._files
            self.steps.append(Entry(name, self._files))
        return self._names[name]

    def hold(self, files: Mapping[str, bytes]) -> None:
        """Start with these files."""
        for name, content in files.items():
            file = self.open(name)
            self.steps += [Write(file, 0, content), Sync(file)]
        self.sync_entries()

    def delete(self, name: str) -> None:
        """Delete a name."""
        del self._names[name]
        self.steps.append(Entry(name, None))

    def sync(self, file: int) -> None:
        """Sync a file."""
        self.steps.append(Sync(file))

    def sync_entries(self) -> None:
        """Sync the directory."""
        self.steps.append(SyncEntries())

    def lying(self) -> Disk:
        """Return a disk that reported its syncs and made none."""
        return Disk([step for step in self.steps if not isinstance(step, Sync | SyncEntries)])

    def acknowledge(self, what: Any) -> None:
        """Record that a caller may rely on something from here on."""
        self.steps.append(Acknowledged(what))

    def acknowledged_before(self, cut: int) -> list[Any]:
        """Return what was acknowledged before a cut."""
        return [step.what for step in self.steps[:cut] if isinstance(step, Acknowledged)]

    def after(self, cut: int, fate: Fate, chance: random.Random) -> dict[str, bytes]:
        """Return the files that are there once the power is back.

        Args:
            cut: How many steps were done.
            fate: How much is there of what was not synced.
            chance: Decides of each sector when that is some of it.
        """
        steps = self.steps[:cut]
        survive = survival(fate, chance)
        contents = _contents(steps, survive)
        return {
            name: bytes(contents[file])
            for name, file in _entries(steps, fate, chance).items()
            if file is not None
        }


Survive = Callable[[Write | Truncate], Iterable[Write | Truncate]]
"""Returns what is left of a step that was not synced."""


def survival(fate: Fate, chance: random.Random) -> Survive:
    """Return what decides of steps that were not synced."""

    def survive(step: Write | Truncate) -> Iterable[Write | Truncate]:
        match fate:
            case "none":
                return ()
            case "all":
                return (step,)
            case "some" if isinstance(step, Truncate):
                return (step,) if chance.random() < 0.5 else ()
            case _:
                return _torn(step, chance)

    return survive


def _torn(step: Write | Truncate, chance: random.Random) -> Iterator[Write]:
    """Yield some sectors of a write, some of them in part."""
    assert isinstance(step, Write)
    share = chance.choice((0.1, 0.5, 0.9))
    place, end = step.offset, step.offset + len(step.data)
    while place < end:
        after = min(end, (place // SECTOR + 1) * SECTOR)
        data = step.data[place - step.offset : after - step.offset]
        if chance.random() < share:
            whole = chance.random() < 0.9
            yield Write(step.file, place, data if whole else data[: chance.randrange(len(data))])
        place = after


def _contents(steps: Sequence[Step], survive: Survive) -> dict[int, bytearray]:
    synced = {step.file: number for number, step in enumerate(steps) if isinstance(step, Sync)}
    contents: dict[int, bytearray] = defaultdict(bytearray)
    for number, step in enumerate(steps):
        if isinstance(step, Write | Truncate):
            safe = number < synced.get(step.file, 0)
            for done in (step,) if safe else survive(step):
                _do(done, contents[done.file])
    return contents


def _do(step: Write | Truncate, content: bytearray) -> None:
    if isinstance(step, Truncate):
        content[step.size :] = bytes(max(0, step.size - len(content)))
        return
    content.extend(bytes(max(0, step.offset - len(content))))
    content[step.offset : step.offset + len(step.data)] = step.data


def _entries(steps: Sequence[Step], fate: Fate, chance: random.Random) -> Mapping[str, int | None]:
    """Return the names that are there; what was done to one after another was done in order."""
    synced = max((n for n, step in enumerate(steps) if isinstance(step, SyncEntries)), default=0)
    entries: dict[str, int | None] = {}
    loose: dict[str, list[int | None]] = defaultdict(list)
    for number, step in enumerate(steps):
        if isinstance(step, Entry) and number < synced:
            entries[step.name] = step.file
        elif isinstance(step, Entry):
            loose[step.name].append(step.file)
    for name, changes in loose.items():
        most = {"none": 0, "all": len(changes)}.get(fate, chance.randint(0, len(changes)))
        if most:
            entries[name] = changes[most - 1]
    return entries
