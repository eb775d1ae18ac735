"""Freeze Python's time."""

from __future__ import annotations

import datetime

import freezegun
from freezegun.api import _freeze_time

import slumberd


def freeze_time(instant: datetime.datetime, *, real_asyncio: bool = False) -> _freeze_time:
    """Return a block in which Python's time stands at an instant.

    freezegun reads every name of every module. The names of `slumberd` import their modules, and
    pydantic can build no model while the time is frozen. So they are all imported first.
    """
    for name in slumberd.__all__:
        getattr(slumberd, name)
    return freezegun.freeze_time(instant, real_asyncio=real_asyncio)
