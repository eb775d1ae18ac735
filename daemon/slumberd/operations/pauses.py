"""Pause and resume rules: a paused rule is never due, and fires only on request."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Annotated, Protocol

from slumberd.logs.late_log import LateLogger
from slumberd.model.errors import StoreError
from slumberd.model.rule import ConsolidationRule
from slumberd.operations.caller import Caller, Right
from slumberd.operations.forms import OperatorForm, Result, choose_rules
from slumberd.operations.handlers import Answer, Example, operation
from slumberd.rules.rule_loader import RuleSet

_log = LateLogger()


class RulesForm(OperatorForm):
    """The requests ``pause`` and ``resume``: the ids of rules."""

    rules: list[str]


class PausedRules(Result):
    """Which rules are paused.

    Attributes:
        changed: The rules that this request paused or resumed.
        paused: All paused rules.
    """

    changed: list[str]
    paused: list[str]


class PauseStore(Protocol):
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


class Pausing:
    """Pauses and resumes rules.

    Args:
        kept: Where the paused rules are kept.
        rules: Returns the rules in force.

    Attributes:
        paused: Who paused each paused rule, by the rule's id.
        changed: Called after a change, because other rules may be due.
    """

    def __init__(self, kept: PauseStore, rules: Callable[[], RuleSet]) -> None:
        self._kept = kept
        self._rules = rules
        self.paused = kept.read()
        self._alone = asyncio.Lock()
        self.changed: Callable[[], None] = _nothing

    def awake(self, rules: Sequence[ConsolidationRule]) -> list[ConsolidationRule]:
        """Return the rules that are not paused."""
        return [rule for rule in rules if rule.id not in self.paused]

    @operation(
        right=Right.OPERATE,
        idempotent=True,
        errors=(StoreError,),
        example=Example({"rules": ["home"]}, {"changed": ["home"], "paused": ["home"]}),
    )
    async def pause(self, request: RulesForm, caller: Caller) -> Annotated[Answer, PausedRules]:
        """Pause rules; a firing that is running continues to its end."""
        async with self._alone:
            fresh = [name for name in self._ids(request) if name not in self.paused]
            await self._keep(self.paused | dict.fromkeys(fresh, str(caller)))
        for name in fresh:
            _log.info("rule.paused", rule_id=name, by=str(caller))
        return {"changed": fresh, "paused": sorted(self.paused)}

    @operation(
        right=Right.OPERATE,
        idempotent=True,
        errors=(StoreError,),
        example=Example({"rules": ["home"]}, {"changed": ["home"], "paused": []}),
    )
    async def resume(self, request: RulesForm, caller: Caller) -> Annotated[Answer, PausedRules]:
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
