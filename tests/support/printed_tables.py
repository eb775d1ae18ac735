"""Read the tables that commands print, as cells by the name of their column."""

from __future__ import annotations

import re


def table(text: str, *columns: str) -> list[dict[str, str]]:
    """Return the rows of the first table that has these columns, whatever else it has.

    Raises:
        AssertionError: No table has them.
    """
    lines = text.splitlines()
    for number, line in enumerate(lines):
        names = re.split(r"  +", line.strip())
        if set(columns) <= set(names):
            starts = _starts(line, names)
            rows = lines[number + 1 :]
            end = next((n for n, row in enumerate(rows) if not row.strip()), len(rows))
            return [_cells(row, names, starts) for row in rows[:end]]
    raise AssertionError(f"no table has the columns {columns}: {text}")


def _starts(line: str, names: list[str]) -> list[int]:
    found, at = [], 0
    for name in names:
        at = line.index(name, at)
        found.append(at)
        at += len(name)
    return found


def _cells(row: str, names: list[str], starts: list[int]) -> dict[str, str]:
    ends = [*starts[1:], len(row)]
    return {
        name: row[start:end].strip() for name, start, end in zip(names, starts, ends, strict=True)
    }


def labels(text: str) -> dict[str, str]:
    """Return lines of the form ``label  value`` before the first table, by label."""
    block = text.split("\n\n", 1)[0]
    parts = (re.split(r"  +", line.strip(), maxsplit=1) for line in block.splitlines())
    return {part[0]: part[1] for part in parts if len(part) == 2}
