"""Read which conditions of a rule's filter an episode does not meet."""

from __future__ import annotations

from collections.abc import Collection

from slumberd.consolidation.incoming import states_nothing
from slumberd.errors import FilterError
from slumberd.filters.conditions import STATED, Condition, condition_of, describe_unmet
from slumberd.model.episode import EpisodeVersion
from slumberd.model.rule import ConsolidationRule
from slumberd.observability.line_format import printable
from slumberd.operations.reads.episode_results import STATES_ITSELF, Unmet
from slumberd.storage.episodes.store import EngineMemoryStore

_MOST_CONDITIONS = 3
_NEWEST = 2**63 - 1

_OF_STATEMENTS = frozenset({*STATED, "confidence", "metadata"})
"""The columns of what an episode states itself."""


async def explain_filter(
    memory: EngineMemoryStore, rule: ConsolidationRule, version: EpisodeVersion
) -> Unmet:
    """Return which conditions of a rule's filter an episode does not meet.

    Args:
        memory: The episodes.
        rule: A rule whose filter does not select the episode.
        version: The newest version of the episode.
    """
    condition = condition_of(rule.when_filter)
    needs = f"`{printable(rule.when_filter)}`"
    if condition is None:
        return Unmet("filtered", f"filtered: the rule's filter needs {needs}")
    try:
        unmet = {
            single.text
            for single in condition.singles()
            if not await _meets(memory, rule, single.text, version)
        }
        if _is_person_missing(condition, unmet) and not await _meets(
            memory, rule, "is_person", version
        ):
            return _explain_speaker(version.speaker)
    except FilterError:
        return Unmet("filtered", f"filtered: the rule's filter needs {needs}")
    if _reads_texts_only(rule, version, condition, unmet):
        return Unmet("filtered", STATES_ITSELF)
    lacking = describe_unmet(condition, unmet, _unstated_in(version))
    words = " and ".join(lacking[:_MOST_CONDITIONS]) or needs
    return Unmet("filtered", f"filtered: the rule's filter needs {words}")


def _reads_texts_only(
    rule: ConsolidationRule, version: EpisodeVersion, condition: Condition, unmet: Collection[str]
) -> bool:
    """Return whether a rule that extracts leaves out an episode since it states something."""
    missing = [one for one in condition.singles() if one.text in unmet]
    return (
        rule.extract is not None
        and condition.joined != "or"
        and not states_nothing(version.metadata)
        and bool(missing)
        and all(
            one.columns <= _OF_STATEMENTS and one.text.casefold().endswith("is null")
            for one in missing
        )
    )


async def _meets(
    memory: EngineMemoryStore, rule: ConsolidationRule, condition: str, version: EpisodeVersion
) -> bool:
    plain = {"when_filter": condition, "extract": None, "salience": None}
    asked = rule.model_copy(update=plain)
    found = await memory.reread(asked, [version.id], upto=_NEWEST)
    return any(one.matched for one in found)


def _is_person_missing(condition: Condition, unmet: Collection[str]) -> bool:
    """Return whether a condition on who spoke must hold, and does not."""
    needed = condition.parts if condition.joined == "and" else (condition,)
    return any(one.columns == {"is_person"} and one.text in unmet for one in needed)


def _explain_speaker(speaker: str | None) -> Unmet:
    if speaker is None:
        return Unmet("speaker_unknown", "taken from nobody: the speaker is not known")
    said = f"{speaker!r:.100} said this"
    return Unmet("other_speaker", f"filtered: the rule takes only what the person says; {said}")


def _unstated_in(version: EpisodeVersion) -> set[str]:
    columns = {name for name in STATED if version.metadata.get(name) is None}
    return columns | ({"speaker"} if version.speaker is None else set())
