"""Facts, the patterns that find them, and the match of one against the other.

The caller compiles regular expressions.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import Any, Literal, NamedTuple, Self, assert_never

import orjson
from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, field_validator

from slumberd.model.arguments import require_object
from slumberd.model.episode import microseconds
from slumberd.model.errors import PatternError
from slumberd.model.pattern import (
    LONGEST,
    Equals,
    Glob,
    InvalidGlobError,
    Matches,
    OneOf,
    Prefix,
    Text,
    matcher_of,
    require_texts,
)
from slumberd.model.scope import canonical, channel_of
from slumberd.model.stages import MARK_IDS

Order = Literal["id", "said_at", "pinned_at", "confidence"]
"""What a page of facts is sorted by."""

Position = tuple[int | float, str]
"""The sort key of a fact: its instant in microseconds, its confidence, or 0; then its id."""

_NO_CONFIDENCE = -1.0


class Fact(BaseModel):
    """A current fact.

    Attributes:
        id: The id of the episode that promoted it; ``@{channel}/{episode id}`` outside the
            channel ``facts``.
        user: The user that it is about.
        agent: The agent that learnt it.
        payload: Its body; ``subject``, ``predicate`` and ``object`` when it has them, and
            ``timestamp``, the instant of its claim.
        lineage: Where it comes from; never empty in a store. Own entries first, one a rule,
            by rule id; then the facts that it replaced, newest first.
        confidence: 0 to 1.
        pinned_at: The instant of the firing, or of the manual edit, that promoted it.
        metadata: Free form.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

    id: str
    user: str
    agent: str
    payload: dict[str, Any]
    lineage: list[dict[str, Any]]
    confidence: float
    pinned_at: datetime
    metadata: dict[str, Any] = Field(default_factory=dict)

    @property
    def extracted_by(self) -> str | None:
        """What found it in a text, such as the id of a pattern; None when a program stated it."""
        found = self.payload.get("extracted")
        by = found.get("by") if isinstance(found, dict) else None
        return by if isinstance(by, str) else None

    @property
    def said_at(self) -> datetime:
        """The instant of its claim, ``payload.timestamp``; without one, `pinned_at`."""
        given = self.payload.get("timestamp")
        try:
            at = datetime.fromisoformat(given if isinstance(given, str) else "")
            return assume_utc(at).astimezone(UTC)
        except (ValueError, OverflowError):  # in a row of another program
            return assume_utc(self.pinned_at)


class FactPattern(BaseModel):
    """A search for facts: what they must match, their order, and the page.

    A slot of None matches everything, a text only an equal text. ``slumberd.model.pattern`` has
    the other forms. A fact must match every given slot.

    Attributes:
        subject: The payload's subject.
        predicate: The payload's predicate.
        object: The payload's object; the only slot for JSON values other than texts.
        user: The fact's user. Only a text here limits the search to one user.
        agent: The fact's agent.
        id: The fact's id.
        channel: The channel in the fact's id. None matches every channel but ``marks`` and
            ``weights``, whose facts are about episodes; with an `id`, it matches every channel.
        extracted_by: What found it in a text, such as the id of a pattern.
        min_confidence: The least confidence, 0 to 1.
        max_confidence: The greatest confidence, 0 to 1.
        said_since: Claimed at this instant or later.
        said_until: Claimed before this instant.
        pinned_since: Pinned at this instant or later.
        pinned_until: Pinned before this instant.
        order: What the facts are sorted by, then by id.
        descending: Whether the order is reversed, ids included.
        limit: At most this many facts, 1 or more; None for all.
        after: Only facts after the cursor that `following` made. Paging is stable: a fact that
            does not change appears on exactly one page, even if others are added or removed.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

    subject: Text | None = None
    predicate: Text | None = None
    object: Text | Equals | None = None
    user: Text | None = None
    agent: Text | None = None
    id: Text | None = None
    channel: str | None = None
    extracted_by: str | None = None
    min_confidence: float | None = Field(default=None, ge=0, le=1)
    max_confidence: float | None = Field(default=None, ge=0, le=1)
    said_since: AwareDatetime | None = None
    said_until: AwareDatetime | None = None
    pinned_since: AwareDatetime | None = None
    pinned_until: AwareDatetime | None = None
    order: Order = "id"
    descending: bool = False
    limit: int | None = Field(default=None, ge=1)
    after: str | None = None

    _are_texts = field_validator("subject", "predicate", "user", "agent", "id")(require_texts)

    def following(self, last: Fact) -> Self:
        """Return the pattern of the next page.

        Args:
            last: The last fact of this page, unchanged.
        """
        require_object("last", last, "Fact")
        return self.model_copy(update={"after": cursor(self.order, last)})


def position(order: Order, fact: Fact) -> Position:
    """Return a fact's sort key; it accepts any row that another program wrote."""
    match order:
        case "id":
            return 0, fact.id
        case "said_at":
            return microseconds(fact.said_at), fact.id
        case "pinned_at":
            return microseconds(assume_utc(fact.pinned_at)), fact.id
        case "confidence":
            return sortable_confidence(fact), fact.id
        case _:
            assert_never(order)


def sortable_confidence(fact: Fact) -> float:
    """Return a fact's confidence; a value that is not a number sorts below all others."""
    found: object = fact.confidence
    return found if isinstance(found, float) else _NO_CONFIDENCE


def assume_utc(at: datetime) -> datetime:
    """Return an aware instant; one without a time zone, from another program, is UTC."""
    return at.replace(tzinfo=UTC) if at.tzinfo is None else at


def cursor(order: Order, last: Fact) -> str:
    """Return the cursor at which the next page starts: letters, digits, ``-`` and ``_``."""
    key, id = position(order, last)
    # As text: JSON has no infinity, and another program may have written one.
    document = orjson.dumps([order, str(key), id])
    return base64.urlsafe_b64encode(document).decode().rstrip("=")


def place_after(pattern: FactPattern) -> Position | None:
    """Return the sort key after which a pattern's page starts; None for the first page.

    Raises:
        PatternError: The cursor is invalid, or of another order.
    """
    if pattern.after is None:
        return None
    try:
        padded = pattern.after.encode("ascii") + b"=" * (-len(pattern.after) % 4)
        order, key, id = orjson.loads(base64.b64decode(padded, b"-_", validate=True))
        place = (float(key) if order == "confidence" else int(key)), str(id)
    except (ValueError, TypeError) as error:
        raise PatternError("after", pattern.after, "is not a cursor of a page of facts") from error
    if order != pattern.order:
        problem = f"is a cursor of a page by {order}, and the order is {pattern.order}"
        raise PatternError("after", pattern.after, problem)
    return place


SLOTS = ("subject", "predicate", "object", "user", "agent", "id")
"""The slots that take forms; the first three are in the payload."""

IN_PAYLOAD = SLOTS[:3]

ValueTest = Callable[[Any], bool]
"""Returns whether a value of any type matches."""

Compile = Callable[[str, str], Callable[[str], bool]]
"""Compiles the regular expression of a slot to a function that matches a whole text.
It raises `PatternError`, and `ExtraMissingError`."""


def hides_marks(pattern: FactPattern) -> bool:
    """Return whether a pattern matches no mark or weight: it has neither a channel nor an id."""
    return pattern.channel is None and pattern.id is None


def matcher(pattern: FactPattern, compile: Compile) -> Callable[[Fact], bool]:  # noqa: A002 # what it does
    """Return a function that matches a fact against a pattern, without its order and page.

    Raises:
        PatternError: A glob or a regular expression is invalid.
        ExtraMissingError: There is a regular expression, and its engine is not installed.
    """
    tests = [test for slot in SLOTS for test in _slot_tests(pattern, slot, compile)]
    tests += _bound_tests(pattern)
    if len(tests) == 1:
        return tests[0]
    return lambda fact: all(test(fact) for test in tests)


def _slot_tests(pattern: FactPattern, slot: str, compile: Compile) -> list[Callable[[Fact], bool]]:  # noqa: A002
    form = getattr(pattern, slot)
    if form is None:
        return []
    test = _value_test(form, slot, compile)
    if slot in IN_PAYLOAD:
        return [lambda fact: test(fact.payload.get(slot))]
    return [lambda fact: test(getattr(fact, slot))]


def _value_test(form: object, slot: str, compile: Compile) -> ValueTest:  # noqa: A002
    match form:
        case Prefix(prefix=start):
            return _text_test(lambda text: text.startswith(start))
        case Glob(glob=glob):
            return _text_test(_compile_glob(slot, _check_length(slot, glob)))
        case Matches(matches=expression):
            return _text_test(compile(slot, _check_length(slot, expression)))
        case OneOf(one_of=values) if all(isinstance(value, str) for value in values):
            return _text_test(frozenset(values).__contains__)
        case OneOf(one_of=values):
            return partial(_is_one_of, frozenset(map(canonical, values)))
        case Equals(equals=value):
            return partial(_is_one_of, frozenset([canonical(value)]))
        case _:
            return lambda value: bool(value == form)


def _text_test(test: Callable[[str], bool]) -> ValueTest:
    return lambda value: isinstance(value, str) and test(value)


def _is_one_of(values: frozenset[str], value: object) -> bool:
    return canonical(value) in values


def _check_length(slot: str, text: str) -> str:
    if len(text) > LONGEST:
        shown = f"{text[:40]}..."
        raise PatternError(slot, shown, f"is longer than {LONGEST} characters", LONGEST)
    return text


def _compile_glob(slot: str, glob: str) -> Callable[[str], bool]:
    try:
        return matcher_of(glob)
    except InvalidGlobError as error:
        raise PatternError(slot, glob, error.problem, error.position) from error


def _bound_tests(pattern: FactPattern) -> list[Callable[[Fact], bool]]:
    tests: list[Callable[[Fact], bool]] = []
    if (channel := pattern.channel) is not None:
        tests.append(lambda fact: channel_of(fact.id) == channel)
    elif hides_marks(pattern):
        tests.append(lambda fact: not fact.id.startswith(MARK_IDS))
    if (by := pattern.extracted_by) is not None:
        tests.append(lambda fact: fact.extracted_by == by)
    if (least := pattern.min_confidence) is not None:
        tests.append(lambda fact: sortable_confidence(fact) >= least)
    if (most := pattern.max_confidence) is not None:
        tests.append(lambda fact: 0 <= sortable_confidence(fact) <= most)
    tests += _between(lambda fact: fact.said_at, pattern.said_since, pattern.said_until)
    tests += _between(
        lambda fact: assume_utc(fact.pinned_at), pattern.pinned_since, pattern.pinned_until
    )
    return tests


def _between(
    instant_of: Callable[[Fact], datetime], since: datetime | None, until: datetime | None
) -> list[Callable[[Fact], bool]]:
    """Return tests whether an instant of a fact is not before `since`, and before `until`."""
    tests: list[Callable[[Fact], bool]] = []
    if since is not None:
        tests.append(lambda fact: instant_of(fact) >= since)
    if until is not None:
        tests.append(lambda fact: instant_of(fact) < until)
    return tests


SupersededKind = Literal["replaced", "retracted"]
"""Whether another value took the place of a claim, or none did."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Superseded:
    """A claim of an episode that is not current any more.

    Attributes:
        subject: What it is about; None when the claim has no subject.
        predicate: What it says of it; None when the claim has no predicate.
        object: The value that is not current.
        kind: Whether another value took its place.
        by: The value that is current in its place; None when it was retracted.
        at: When that was said, in UTC.
        fact_id: The fact that took its place, or the id under which the ledger has the retraction.
        text: The fact in words that took its place, or the claim in words that was retracted.
    """

    subject: Any
    predicate: Any
    object: Any
    kind: SupersededKind
    by: Any
    at: datetime
    fact_id: str
    text: str


class QuotedEpisode(NamedTuple):
    """An episode whose text an answer quotes.

    Attributes:
        user: Its user; another scope may have a fact of the same id.
        content: Its text. What an earlier text of the episode claimed does not count.
    """

    id: str
    user: str
    agent: str
    content: str


class SupersededClaims(NamedTuple):
    """What a quoted episode says about its claims.

    Attributes:
        superseded: Its claims that are not current any more.
        is_whole: Whether none of its claims is current.
    """

    superseded: Sequence[Superseded]
    is_whole: bool


SupersededByEpisode = Mapping[str, SupersededClaims]
"""By the id of an episode; an episode whose claims are all current is not in it."""


def words_of_payload(payload: Mapping[str, Any]) -> str:
    """Return a fact in words: its triple; the content of one without subject and predicate."""
    triple = [payload.get(name) for name in ("subject", "predicate", "object")]
    parts: Iterable[Any] = [payload.get("content")] if None in triple[:2] else triple
    return " ".join(_words(part) for part in parts if part is not None)


def _words(value: Any) -> str:  # noqa: ANN401 # any JSON
    text = value if isinstance(value, str) else canonical(value)
    return text.replace("_", " ")
