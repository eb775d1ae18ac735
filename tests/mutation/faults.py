"""Faults that can be planted in a text, and random samples of them."""

from __future__ import annotations

import difflib
import hashlib
import random
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from itertools import islice
from pathlib import Path

from tests.mutation import python_faults, sql_faults
from tests.mutation.changes import Change
from tests.mutation.copies import SOURCE

_WEIGHTS = {"arguments swapped": 1}
"""Kinds that are drawn less often than the others, because most of them only crash."""
_NEEDED = {f"{SOURCE}/provenance/fathom_sink.py": "fathom"}
"""Files whose tests are skipped without a module; Fathom needs Python 3.12."""


@dataclass(frozen=True)
class Fault:
    """One change of one file.

    Attributes:
        path: The file, below the root of the checkout.
        source: The text of the file without the fault.
    """

    path: str
    source: str
    change: Change

    @property
    def line(self) -> int:
        """The first line that changes, counted from 1."""
        return self.source.count("\n", 0, self.change.start) + 1

    @property
    def text(self) -> str:
        """The text of the file with the fault."""
        start, end = self.change.start, self.change.end
        return f"{self.source[:start]}{self.change.text}{self.source[end:]}"

    @property
    def changes_something(self) -> bool:
        """Whether the text compiles and differs, as far as a parser can see."""
        if self.path.endswith(".py"):
            return python_faults.differs(self.source, self.text)
        return self.source != self.text

    @property
    def id(self) -> str:
        """A name that depends on the file, the place and the change."""
        change = self.change
        named = f"{self.path}\0{self.source}\0{change.start}\0{change.end}\0{change.text}"
        return hashlib.sha256(named.encode()).hexdigest()[:12]

    @property
    def diff(self) -> str:
        """The lines that differ."""
        lines = difflib.unified_diff(
            self.source.splitlines(), self.text.splitlines(), lineterm="", n=0
        )
        return "\n".join(line for line in lines if not line.startswith(("---", "+++", "@@")))


def faults_of(path: str, source: str) -> list[Fault]:
    """Return every fault that can be planted in a file; some may change nothing."""
    changes = python_faults.changes(source) if path.endswith(".py") else sql_faults.changes(source)
    return [Fault(path, source, change) for change in dict.fromkeys(changes)]


def sample(root: Path, count: int, seed: int, only: Sequence[str] = ()) -> list[Fault]:
    """Return faults at random lines; every line with a possible fault is equally likely.

    ``only`` takes only files whose path below the root starts with one of these.
    """
    chooser = random.Random(seed)
    lines: dict[tuple[str, int], list[Fault]] = defaultdict(list)
    for path in _files(root, only):
        for fault in faults_of(path, (root / path).read_text(encoding="utf-8")):
            lines[path, fault.line].append(fault)
    places = sorted(lines)
    chooser.shuffle(places)
    drawn = (_draw(lines[place], chooser) for place in places)
    return list(islice((fault for fault in drawn if fault), count))


def named(root: Path, places: Mapping[str, str]) -> list[Fault]:
    """Return faults by their ids; the places say which file has each."""
    return [
        fault
        for path in sorted(set(places.values()))
        for fault in faults_of(path, (root / path).read_text(encoding="utf-8"))
        if fault.id in places
    ]


def _draw(faults: Iterable[Fault], chooser: random.Random) -> Fault | None:
    """Return a fault of a random kind, so that a line of numbers has not only changed numbers."""
    kinds: dict[str, list[Fault]] = defaultdict(list)
    for fault in faults:
        kinds[fault.change.kind].append(fault)
    while kinds:
        kind = chooser.choices(sorted(kinds), [_WEIGHTS.get(kind, 3) for kind in sorted(kinds)])[0]
        fault = chooser.choice(kinds.pop(kind))
        if fault.changes_something:
            return fault
    return None


def _files(root: Path, only: Sequence[str]) -> list[str]:
    found = [
        str(file.relative_to(root))
        for pattern in ("*.py", "*.sql")
        for file in (root / SOURCE).rglob(pattern)
        if file.name != "__main__.py"
    ]
    skipped = {path for path, module in _NEEDED.items() if find_spec(module) is None}
    chosen = (path for path in found if not only or path.startswith(tuple(only)))
    return sorted(path for path in chosen if path not in skipped)
