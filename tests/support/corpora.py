"""Real streams with a gold standard; without their files, their tests are skipped."""

from __future__ import annotations

import gzip
import os
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest

from tests.support.repository import ROOT

FOLDER = Path(os.environ.get("SLUMBERD_TEST_DATA", ROOT.parent / "shared" / "data"))

SETS = ("congress_social", "eol", "sgd_multi", "woz2")
"""Tests of ``--all`` take the first one: it has 2,537 episodes, the next two have 33,000 each."""

needs_corpora = pytest.mark.skipif(
    not FOLDER.is_dir(), reason=f"the corpora are not in {FOLDER.name!r} beside the project"
)

Slot = tuple[str, str, str, str]
"""User, agent, subject, predicate."""


def episodes_file(name: str) -> Path:
    """Return the file of a set's episodes, as ``slumberd import`` takes it."""
    return FOLDER / f"{name}.episodes.jsonl.gz"


def lines(name: str, part: str) -> list[dict[str, Any]]:
    """Return ``episodes``, ``gold`` or ``asof`` of a set."""
    with gzip.open(FOLDER / f"{name}.{part}.jsonl.gz") as file:
        return [orjson.loads(line) for line in file]


def gold(*names: str) -> dict[Slot, list[str]]:
    """Return the facts that must be current at the end: by slot, the accepted objects."""
    return {
        (row["user"], row["agent"], row["subject"], row["predicate"]): row["accept"]
        for name in names
        for row in lines(name, "gold")
    }


def slots_of(facts: Iterable[dict[str, Any]]) -> dict[Slot, str]:
    """Return facts as the command line prints them, by slot."""
    return {
        (fact["user"], fact["agent"], fact["payload"]["subject"], fact["payload"]["predicate"]):
            fact["payload"]["object"]
        for fact in facts
    }  # fmt: skip


def differences(found: dict[Slot, str], wanted: dict[Slot, list[str]]) -> list[str]:
    """Return what is missing, wrong and surplus; empty when all is right."""
    missing = [f"missing {slot}" for slot in wanted if slot not in found]
    surplus = [f"surplus {slot}" for slot in found if slot not in wanted]
    wrong = [
        f"{slot} is {found[slot]!r}, not one of {accept}"
        for slot, accept in wanted.items()
        if slot in found and found[slot] not in accept
    ]
    return missing + surplus + wrong


def as_of(name: str) -> Iterator[tuple[str, dict[tuple[str, str], dict[Slot, list[str]]]]]:
    """Yield each instant with the facts that were current then, by (user, agent)."""
    by_instant: dict[str, dict[tuple[str, str], dict[Slot, list[str]]]] = defaultdict(dict)
    for row in lines(name, "asof"):
        assert row["complete"]
        owner = (row["user"], row["agent"])
        by_instant[row["at"]][owner] = {
            (*owner, fact["subject"], fact["predicate"]): fact["accept"] for fact in row["facts"]
        }
    yield from by_instant.items()
