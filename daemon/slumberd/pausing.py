"""Pause rules, and resume them: what is paused is never due, and fires by hand only."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import structlog

from slumberd.config.rule_loader import RuleSet
from slumberd.control import Answer, Operation, Peer
from slumberd.model.rule import ConsolidationRule
from slumberd.operations import chosen
from slumberd.pauses import keep_paused, paused_in
from slumberd.requestforms import RulesForm, checked

_log = structlog.get_logger("slumberd")


class Pausing:
    """What people ask of rules that are to rest for a while.

    Args:
        directory: The state directory.
        rules: Returns the rules in force.

    Attributes:
        paused: Who paused which rule, by the rule's id.
        changed: Called when other rules may be due.
    """

    def __init__(self, directory: Path, rules: Callable[[], RuleSet]) -> None:
        self._directory = directory
        self._rules = rules
        self.paused = paused_in(directory)
        self._alone = asyncio.Lock()
        self.changed: Callable[[], None] = _nothing

    def by_name(self) -> dict[str, Operation]:
        """Return both operations by the name that a request gives."""
        return {
            "pause": checked("pause", RulesForm, self.pause),
            "resume": checked("resume", RulesForm, self.resume),
        }

    def awake(self, rules: Sequence[ConsolidationRule]) -> list[ConsolidationRule]:
        """Return the rules that are not paused."""
        return [rule for rule in rules if rule.id not in self.paused]

    async def pause(self, request: dict[str, Any], peer: Peer) -> Answer:
        """Let ``rules``, a list of ids, be due no more; what fires now goes on to its end."""
        async with self._alone:
            fresh = [name for name in self._ids(request) if name not in self.paused]
            await self._keep(self.paused | dict.fromkeys(fresh, str(peer)))
        for name in fresh:
            _log.info("rule.paused", rule_id=name, by=str(peer))
        return {"changed": fresh, "paused": sorted(self.paused)}

    async def resume(self, request: dict[str, Any], peer: Peer) -> Answer:
        """Let ``rules``, a list of ids, be due again; what they missed they take up now."""
        async with self._alone:
            woken = [name for name in self._ids(request) if name in self.paused]
            await self._keep({n: by for n, by in self.paused.items() if n not in woken})
        for name in woken:
            _log.info("rule.resumed", rule_id=name, by=str(peer))
        return {"changed": woken, "paused": sorted(self.paused)}

    def _ids(self, request: dict[str, Any]) -> list[str]:
        return [rule.id for rule in chosen(self._rules(), request.get("rules") or [])]

    async def _keep(self, paused: dict[str, str]) -> None:
        # First: what cannot be kept is not done.
        await asyncio.to_thread(keep_paused, self._directory, paused)
        self.paused = paused
        self.changed()


def _nothing() -> None:
    pass
