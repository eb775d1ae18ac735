"""Ids of runs: what one command or one due cadence does, in any number of batches."""

from __future__ import annotations

import base64
import os

_RANDOM_BYTES, _CHARACTERS = 8, 12


def new_run_id() -> str:
    """Return an id of 12 letters and digits, at random, that no other run has."""
    return base64.b32encode(os.urandom(_RANDOM_BYTES)).decode().lower()[:_CHARACTERS]
