"""Consolidation rules: which episodes become facts, where, and how often (the cadence).

Also the functions of the operator that rules name, and sets of rules in a database.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal, NamedTuple

import orjson
from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    InstanceOf,
    ValidationError,
    field_serializer,
    field_validator,
)

from slumberd.model.duration import Duration
from slumberd.model.errors import ConsolidationRuleError
from slumberd.model.extraction import Extraction, ModelSummariser
from slumberd.model.firing import NO_LIMITS, Limits
from slumberd.model.salience import Gate
from slumberd.model.stages import MARKS, SUMMARIES, WEIGHTS, Stage

MAX_EVERY = 10**9
"""The largest N of ``every: N``; a larger one is a typing error."""

CADENCE_KEYS = ("every", "cron", "interval")
"""The keys of a cadence, of which it has exactly one."""

ONE_CADENCE = "exactly one of 'every', 'cron' and 'interval' is needed"

EPISODES = r"^[1-9][0-9]{0,8} episodes?$"
"""``every`` in words, as ``100 episodes``."""

INTERVALS = {
    **{f"{n}m": f"*/{n} * * * *" for n in (1, 2, 3, 4, 5, 6, 10, 12, 15, 20, 30)},
    **{f"{n}h": f"0 */{n} * * *" for n in (1, 2, 3, 4, 6, 8, 12)},
    "1d": "0 0 * * *",
}
"""The values of ``interval``, which divide a day evenly, as cron expressions in UTC."""


@dataclass(frozen=True, slots=True)
class Every:
    """Due when at least `count` versions of episodes lie above the watermark."""

    count: int


@dataclass(frozen=True, slots=True)
class Cron:
    """Due when an instant of the expression has passed since the last one served.

    Attributes:
        expression: Five fields, as in crontab(5), or one of its six macros.
        timezone: An IANA name; None takes the configuration's.
    """

    expression: str
    timezone: str | None = None


Cadence = Every | Cron


def cadence_of(document: Mapping[str, Any]) -> Cadence:
    """Read a rule's ``cadence``; do not check whether a cron expression has instants.

    An interval is a cron expression in UTC.

    Raises:
        ValueError: It has not exactly one of `CADENCE_KEYS`, or a value is out of bounds.
    """
    if unknown := sorted(set(document) - {*CADENCE_KEYS, "timezone"}):
        raise ValueError(f"unknown key {unknown[0]!r}; write 'every: N' or 'cron: \"0 3 * * *\"'")
    if sum(key in document for key in CADENCE_KEYS) != 1:
        raise ValueError(ONE_CADENCE)
    if "cron" in document:
        return _cron(document)
    if "timezone" in document:
        raise ValueError("'timezone' goes with 'cron' only")
    return _interval(document) if "interval" in document else _every(document)


def count_in(every: object) -> object:
    """Return the number in a text such as ``100 episodes``; any other value as it is."""
    if isinstance(every, str) and re.fullmatch(EPISODES, every):
        return int(every.split()[0])
    return every


def _every(document: Mapping[str, Any]) -> Every:
    count = count_in(document["every"])
    if isinstance(count, bool) or not isinstance(count, int) or not 1 <= count <= MAX_EVERY:
        raise ValueError(
            f"'every' is a whole number from 1 to {MAX_EVERY}, or in words as '100 episodes',"
            f" not {count!r}"
        )
    return Every(count)


def _interval(document: Mapping[str, Any]) -> Cron:
    interval = document["interval"]
    if not isinstance(interval, str) or interval not in INTERVALS:
        raise ValueError(f"'interval' is one of {' '.join(INTERVALS)}, not {interval!r}")
    return Cron(INTERVALS[interval], "UTC")


def _cron(document: Mapping[str, Any]) -> Cron:
    expression, timezone = document["cron"], document.get("timezone")
    if not isinstance(expression, str) or not expression.strip():
        raise ValueError(f"'cron' is an expression in quotes, not {expression!r}")
    if timezone is not None and (not isinstance(timezone, str) or not timezone):
        raise ValueError(f"'timezone' is a name as 'Europe/Berlin', not {timezone!r}")
    return Cron(expression, timezone)


MOST_MESSAGE = 200
"""Characters of an exception's message that a description has at most."""


@dataclass(frozen=True, slots=True)
class RuleFunction:
    """A Python function that a rule names.

    Attributes:
        name: As rule files name it: ``python:package.module:function``.
        digest: Changes with the name, and with the file of the module.
        call: The function. It may raise anything.
    """

    name: str
    digest: str
    call: Callable[..., Any] = field(compare=False, repr=False)


def describe_exception(error: BaseException) -> str:
    """Return the class and the message of an exception on one line, the message cut."""
    try:
        message = " ".join(str(error).split())
    except Exception:  # noqa: BLE001 - an operator's exception may not even have a message
        message = ""
    cut = message if len(message) <= MOST_MESSAGE else f"{message[:MOST_MESSAGE]}..."
    return f"{type(error).__name__}: {cut}" if cut else type(error).__name__


_LATER_KEYS = (
    "limits", "on_missed", "catchup_window", "timeout", "similarity", "salience", "kind",
    "filter_cypher", "user", "agent", "extract", "stages", "summariser",
)  # fmt: skip
"""Keys that the first version lacked; `content_hash` ignores those that a rule does not use."""


class Similarity(BaseModel):
    """How near a new fact must be to a current fact to be linked with it.

    Attributes:
        min: Two facts are linked from this cosine of their texts on.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

    min: float = Field(default=0.85, ge=0.0, le=1.0, allow_inf_nan=False)


Kind = Literal["episodes", "graph"]
"""The source that a rule promotes."""

NO_EPISODE = "0"
"""The ``when_filter`` that selects nothing."""


class ConsolidationRule(BaseModel):
    """One rule; the keys up to ``then_emits`` are the specification's, the others slumberd's.

    A rule of kind ``graph`` promotes triples of a graph. Its ``when_filter`` selects no episode.

    Attributes:
        id: The ``rule_id`` of all of its deltas.
        cadence: ``{"every": N}``, ``{"cron": "0 3 * * *", "timezone": "Europe/Berlin"}`` or
            ``{"interval": "1h"}``.
        when_filter: A SQL WHERE fragment over the columns of an episode; empty matches all.
        then_emits: The channels it promotes into.
        enabled: Whether the daemon fires it.
        start: ``beginning`` reads the episodes that are older than the rule; ``now`` does not.
        limits: ``max_deletes`` and ``max_delete_fraction`` of one batch; those of the
            configuration where they are not given.
        on_missed: What follows cron instants that passed while no daemon ran: ``run_once`` fires
            once for all of them, ``skip`` leaves their episodes to the next instant.
        catchup_window: The greatest age of the newest missed instant, in seconds; an older one is
            skipped.
        timeout: How many seconds a firing may take; a longer one is stopped, and fails.
        similarity: Links its new facts with similar current facts; None compares nothing.
        salience: The least salience of an episode that the rule promotes; None promotes all.
        extract: Finds triples in the text of episodes that state none themselves; None finds none.
        summariser: Writes the summaries of the stage ``summarise``; None takes sentences.
        stages: What marks episodes after the rule has promoted what was pending, in order.
        kind: Whether it promotes ``episodes``, or triples of a ``graph``.
        filter_cypher: For a graph, the query that finds the triples.
        user: For a graph, the user of the promoted facts.
        agent: For a graph, the agent of the promoted facts.
        description: Its purpose, in words; nothing depends on it.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

    id: str = Field(min_length=1)
    cadence: dict[str, Any]
    when_filter: str
    then_emits: list[str]
    enabled: bool = True
    start: Literal["beginning", "now"] = "beginning"
    limits: Limits = NO_LIMITS
    on_missed: OnMissed = "run_once"
    catchup_window: Duration = 86_400.0
    timeout: Duration | None = None
    similarity: Similarity | None = None
    salience: Gate | None = None
    extract: InstanceOf[Extraction] | None = None
    summariser: InstanceOf[RuleFunction] | InstanceOf[ModelSummariser] | None = None
    stages: tuple[Stage, ...] = ()
    kind: Kind = "episodes"
    filter_cypher: str = ""
    user: str = ""
    agent: str = ""
    description: str = ""

    @field_validator("cadence")
    @classmethod
    def _has_one_cadence(cls, value: dict[str, Any]) -> dict[str, Any]:
        cadence_of(value)
        return value

    @field_serializer("limits")
    def _limits_by_name(self, limits: Limits) -> dict[str, Any]:
        return limits._asdict()

    @field_serializer("extract")
    def _extraction_by_name(self, extract: Extraction | None) -> dict[str, Any] | None:
        return None if extract is None else {"with": extract.name, "digest": extract.digest}

    @field_serializer("summariser")
    def _summariser_by_name(
        self, summariser: RuleFunction | ModelSummariser | None
    ) -> dict[str, Any] | None:
        found = summariser
        return None if found is None else {"with": found.name, "digest": found.digest}

    @property
    def reads_episodes(self) -> bool:
        """Whether it promotes episodes rather than a graph's triples."""
        return self.kind == "episodes"

    @property
    def asks_model(self) -> bool:
        """Whether a language model finds triples or writes summaries for it."""
        extracts = self.extract is not None and self.extract.asks_model
        return extracts or isinstance(self.summariser, ModelSummariser)

    @property
    def channels(self) -> tuple[str, ...]:
        """The channels of its batches: those that it promotes into, and those of its stages."""
        stages = (SUMMARIES, MARKS, WEIGHTS) if self.stages else ()
        return (*dict.fromkeys(self.then_emits), *stages)

    @property
    def due(self) -> Cadence:
        """The cadence, parsed."""
        return cadence_of(self.cadence)

    @property
    def content_hash(self) -> str:
        """Sixteen hex digits that change with every key that the rule's effect depends on."""
        # A new key that a rule does not use must not change the rule's hash.
        document = self.model_dump(exclude={"description", *filter(self._is_unused, _LATER_KEYS)})
        canonical = orjson.dumps(document, option=orjson.OPT_SORT_KEYS)
        return hashlib.sha256(canonical).hexdigest()[:16]

    def _is_unused(self, key: str) -> bool:
        return bool(getattr(self, key) == type(self).model_fields[key].default)


OnMissed = Literal["run_once", "skip"]
"""What follows cron instants that passed while no daemon ran."""


class PublishedRules(NamedTuple):
    """A version of the rules.

    Attributes:
        version: Its number, from 1; the highest one is in force.
        content_hash: The hash of the rules, as their publisher computed it.
        published_at: When it was published, by the clock of the database.
        reason: Why; empty when nobody said.
        texts: The text of each file, by its name within a directory of rules.
    """

    version: int
    content_hash: str
    published_at: datetime
    by: str
    reason: str
    texts: Mapping[str, str]

    def document(self) -> dict[str, Any]:
        """Return the JSON form, without the texts."""
        return {
            "version": self.version,
            "rules_hash": self.content_hash,
            "published_at": self.published_at.isoformat(),
            "by": self.by,
            "reason": self.reason or None,
            "files": sorted(self.texts),
        }


class RulesToPublish(NamedTuple):
    """Rules without mistakes, which somebody wants to publish.

    Attributes:
        texts: The text of each file, by its name within their directory.
        reason: Why; empty without a reason.
    """

    content_hash: str
    texts: Mapping[str, str]
    by: str
    reason: str = ""


_SPECIFIED = ("id", "cadence", "when_filter", "then_emits")


def own_rule(rule: object) -> ConsolidationRule:
    """Return a rule as slumberd's class; a host may have a class of its own with the same keys.

    Raises:
        ConsolidationRuleError: A key of the specification is missing, or has no meaning here.
    """
    if isinstance(rule, ConsolidationRule):
        return rule
    rule_id = str(getattr(rule, "id", ""))
    if missing := [key for key in _SPECIFIED if not hasattr(rule, key)]:
        raise ConsolidationRuleError(rule_id, "", f"{missing[0]} is missing")
    try:
        return ConsolidationRule.model_validate({key: getattr(rule, key) for key in _SPECIFIED})
    except ValidationError as error:
        [first, *_] = error.errors()
        where = ".".join(map(str, first["loc"]))
        raise ConsolidationRuleError(rule_id, "", f"{where}: {first['msg']}") from error
