"""Pause and resume rules: a paused rule is never due, and fires only on request.

A file beside the databases lists the paused rules, so they stay paused for later daemons.
"""

from __future__ import annotations

import asyncio
import os
import stat
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol

import orjson

from slumberd.config.rule_loader import RuleSet
from slumberd.errors import StoreError
from slumberd.file_modes import create_file
from slumberd.model.rule import ConsolidationRule
from slumberd.observability.late_log import LateLogger
from slumberd.operations import table
from slumberd.operations.caller import Caller
from slumberd.operations.forms import RulesForm
from slumberd.operations.handlers import Answer, Handler, typed_handler
from slumberd.operations.requests import choose_rules

FILE = "paused.json"
VERSION = 1


def paused_in(directory: Path) -> dict[str, str]:
    """Return who paused each paused rule of a state directory, by the rule's id.

    Raises:
        StoreError: The file cannot be read, or has another form.
    """
    file = directory / FILE
    try:
        found = orjson.loads(_content(file))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise _unreadable(file) from error
    paused = found.get("paused") if isinstance(found, dict) else None
    if not isinstance(paused, dict) or not all(isinstance(by, str) for by in paused.values()):
        raise _unreadable(file)
    return paused


def _content(file: Path) -> bytes:
    # Without O_NONBLOCK, opening a FIFO would block until another program writes to it.
    descriptor = os.open(file, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(descriptor, "rb") as reading:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(f"{str(file)!r} is no file")
        return reading.read()


def _unreadable(file: Path) -> StoreError:
    return StoreError(f"{str(file)!r} cannot be read: delete it to resume every rule")


def write_paused(file: Path, paused: dict[str, str]) -> None:
    """Write which rules are paused into a file, atomically.

    Raises:
        StoreError: The file cannot be written.
    """
    fresh = file.with_suffix(".new")
    try:
        fresh.unlink(missing_ok=True)
        with os.fdopen(create_file(fresh, os.O_WRONLY), "wb") as writing:
            writing.write(orjson.dumps({"version": VERSION, "paused": paused}) + b"\n")
            writing.flush()
            os.fsync(writing.fileno())
        fresh.replace(file)
    except OSError as error:
        raise StoreError(f"{str(file)!r} cannot be written: {error.strerror}") from error


_log = LateLogger()


class PausedRules(Protocol):
    """Keeps which rules are paused, for later daemons."""

    def read(self) -> dict[str, str]:
        """Return who paused each paused rule, by the rule's id.

        Raises:
            StoreError: They cannot be read.
        """
        ...

    def write(self, paused: dict[str, str]) -> None:
        """Write which rules are paused, all or none.

        Raises:
            StoreError: They cannot be written.
        """
        ...


class PausedFile:
    """Keeps which rules are paused in a file beside the databases.

    Args:
        directory: The state directory.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def read(self) -> dict[str, str]:
        """Return who paused each paused rule, by the rule's id."""
        return paused_in(self._directory)

    def write(self, paused: dict[str, str]) -> None:
        """Write which rules are paused."""
        write_paused(self._directory / FILE, paused)


class Pausing:
    """Pauses and resumes rules.

    Args:
        kept: Where the paused rules are kept.
        rules: Returns the rules in force.

    Attributes:
        paused: Who paused each paused rule, by the rule's id.
        changed: Called after a change, because other rules may be due.
    """

    def __init__(self, kept: PausedRules, rules: Callable[[], RuleSet]) -> None:
        self._kept = kept
        self._rules = rules
        self.paused = kept.read()
        self._alone = asyncio.Lock()
        self.changed: Callable[[], None] = _nothing

    def by_name(self) -> dict[str, Handler]:
        """Return both operations, by name."""
        return dict(
            [
                typed_handler(table.PAUSE, self.pause),
                typed_handler(table.RESUME, self.resume),
            ]
        )

    def awake(self, rules: Sequence[ConsolidationRule]) -> list[ConsolidationRule]:
        """Return the rules that are not paused."""
        return [rule for rule in rules if rule.id not in self.paused]

    async def pause(self, request: RulesForm, caller: Caller) -> Answer:
        """Pause rules; a firing that is running continues to its end."""
        async with self._alone:
            fresh = [name for name in self._ids(request) if name not in self.paused]
            await self._keep(self.paused | dict.fromkeys(fresh, str(caller)))
        for name in fresh:
            _log.info("rule.paused", rule_id=name, by=str(caller))
        return {"changed": fresh, "paused": sorted(self.paused)}

    async def resume(self, request: RulesForm, caller: Caller) -> Answer:
        """Resume rules; they catch up on what they missed."""
        async with self._alone:
            resumed = [name for name in self._ids(request) if name in self.paused]
            await self._keep({name: by for name, by in self.paused.items() if name not in resumed})
        for name in resumed:
            _log.info("rule.resumed", rule_id=name, by=str(caller))
        return {"changed": resumed, "paused": sorted(self.paused)}

    def _ids(self, request: RulesForm) -> list[str]:
        return [rule.id for rule in choose_rules(self._rules(), request.rules)]

    async def _keep(self, paused: dict[str, str]) -> None:
        # Before the change takes effect: a pause that cannot be written does not happen.
        await asyncio.to_thread(self._kept.write, paused)
        self.paused = paused
        self.changed()


def _nothing() -> None:
    pass
