"""Faults that can be planted in a text, and random samples of them."""

from __future__ import annotations

import difflib
import hashlib
import random
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from itertools import islice
from pathlib import Path
from typing import Any

from tests.mutation import python_faults, sql_faults
from tests.mutation.changes import Change
from tests.mutation.copies import SOURCE

_WEIGHTS = {"arguments swapped": 1}
"""Kinds that are drawn less often than the others, because most of them only crash."""
_NEEDED = {f"{SOURCE}/workers/provenance/fathom_sink.py": "fathom"}
"""Files whose tests are skipped without a module; Fathom needs Python 3.12."""
_LINES_AROUND = 3
"""How many lines on each side of a fault say where it is."""


@dataclass(frozen=True)
class Fault:
    """One change of one file.

    Attributes:
        path: The file, below the root of the checkout.
        source: The text of the file without the fault.
        name: The id that the fault has in another version of the file, if any.
    """

    path: str
    source: str
    change: Change
    name: str = ""

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
        if self.name:
            return self.name
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

    @property
    def stored(self) -> dict[str, Any]:
        """What `placed` needs to plant the fault, when other lines have changed too."""
        start, end, text, kind = self.change
        before = self.source[:start].splitlines(keepends=True)[-_LINES_AROUND - 1 :]
        after = self.source[end:].splitlines(keepends=True)[: _LINES_AROUND + 1]
        place = {"id": self.id, "path": self.path, "line": self.line, "kind": kind}
        around = "".join([*before, self.source[start:end], *after])
        at = len("".join(before))
        where = {"start": start, "around": around, "at": at, "size": end - start, "text": text}
        return {**place, "diff": self.diff, **where}


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


def placed(root: Path, stored: Mapping[str, Any]) -> Fault | None:
    """Return a stored fault in its file as it is now, or nothing if its place cannot be found.

    The lines around it must be where they were, or somewhere else once; then its own lines.
    """
    file, at, size = root / stored["path"], stored["at"], stored["size"]
    source = file.read_text(encoding="utf-8") if file.exists() else ""
    around: str = stored["around"]
    first = around.rfind("\n", 0, at) + 1
    own = re.compile(r"[^\n]*").match(around, at + size)
    for begin, end in ((0, len(around)), (first, own.end() if own else len(around))):
        expected = stored["start"] - at + begin
        found = [match.start() for match in re.finditer(re.escape(around[begin:end]), source)]
        chosen = [place for place in found if place == expected] or found
        if len(chosen) == 1:
            start = chosen[0] - begin + at
            change = Change(start, start + size, stored["text"], stored["kind"])
            return Fault(stored["path"], source, change, stored["id"])
    return None


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
