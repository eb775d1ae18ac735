"""Rules whose firings fail, and since when. Reads no clock."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime

from slumberd.model.health import DEGRADED_AFTER


@dataclass(frozen=True, slots=True)
class Trouble:
    """The failures of one rule since its last success.

    Attributes:
        since: When the first of them was.
        failures: How many there are, in a row.
        error: The kind of the last.
    """

    since: datetime
    failures: int
    error: str

    @property
    def degraded(self) -> bool:
        """Whether it has failed so often that somebody should look."""
        return self.failures >= DEGRADED_AFTER


class Troubles:
    """The troubles of all rules."""

    def __init__(self) -> None:
        self._by_rule: dict[str, Trouble] = {}
        self._failed: Counter[str] = Counter()

    @property
    def by_rule(self) -> Mapping[str, Trouble]:
        """The rules whose last firing failed."""
        return dict(sorted(self._by_rule.items()))

    @property
    def totals(self) -> Mapping[str, int]:
        """How often each rule has failed, ever."""
        return self._failed

    def failed(self, rule_id: str, at: datetime, error: str) -> Trouble:
        """Count one more failure, and return what that makes."""
        self._failed[rule_id] += 1
        before = self._by_rule.get(rule_id)
        since, failures = (before.since, before.failures) if before else (at, 0)
        self._by_rule[rule_id] = trouble = Trouble(since, failures + 1, error)
        return trouble

    def succeeded(self, rule_id: str) -> Trouble | None:
        """Forget a rule's trouble, and return it; None when it had none."""
        return self._by_rule.pop(rule_id, None)

    def keep(self, rule_ids: Iterable[str]) -> None:
        """Forget the rules that are no longer there."""
        self._by_rule = {name: self._by_rule[name] for name in rule_ids if name in self._by_rule}
