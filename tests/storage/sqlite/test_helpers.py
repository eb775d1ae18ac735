"""Helper processes read the snapshot of the process that forked them, and end with it."""

from __future__ import annotations

import os

import pytest

from slumberd.storage.engine import Session

pytestmark = pytest.mark.integration

HELPERS = 2


def process_id(_: Session, place: int) -> tuple[int, int]:
    return place, os.getpid()


def count_rows(session: Session, _: int) -> tuple[int, int]:
    return os.getpid(), session.value("ledger.count_rows_before", {"seq": 2**62})


def fail(session: Session) -> int:
    raise ValueError


def end(_: Session) -> int:
    os._exit(1)
