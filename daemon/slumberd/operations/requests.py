"""Read the fields of requests: rules, firings, assertions and ids of facts."""

from __future__ import annotations

from collections.abc import Sequence

from slumberd.model.errors import UsageError
from slumberd.model.rule import ConsolidationRule
from slumberd.rules.rule_loader import RuleSet


def choose_rules(rules: RuleSet, ids: Sequence[str] | None) -> list[ConsolidationRule]:
    """Return the named rules in order of id; all enabled rules for None.

    Raises:
        UsageError: A rule is unknown.
    """
    if ids is None:
        return [rule for rule in rules.rules if rule.enabled]
    known = {rule.id: rule for rule in rules.rules}
    if unknown := [name for name in ids if name not in known]:
        raise UsageError(f"no rule {unknown[0]!r}; there are {', '.join(known) or 'none'}")
    return [known[name] for name in sorted(set(ids))]


def require_episode_rules(rules: list[ConsolidationRule], command: str) -> list[ConsolidationRule]:
    """Return the rules unchanged when all of them read episodes, as a command needs.

    Raises:
        UsageError: A rule promotes a graph.
    """
    for rule in rules:
        if not rule.reads_episodes:
            raise UsageError(
                f"rule {rule.id!r} is of kind graph and reads no episodes, so `slumberd {command}`"
                f" does not apply; `slumberd fire {rule.id}` promotes what the graph says now"
            )
    return rules
