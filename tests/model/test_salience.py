"""Salience: the published value, its bounds, and the differences from the original."""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from slumberd import (
    EmbeddingScorer,
    RuleBasedScorer,
    SalienceContext,
    SalienceScorer,
)
from slumberd.clock import SystemClock
from slumberd.model.episode import microseconds
from slumberd.model.salience import NEVER, Access, Gate, cosine, importance_of, salience
from tests.support.builders import START, at, episode, rule
from tests.support.embedders import FakeEmbedder
from tests.support.fakes import FakeClock

pytestmark = pytest.mark.unit

HOUR, DAY = 3_600, 86_400

instants = st.datetimes(
    timezones=st.sampled_from([UTC, timezone(timedelta(hours=14)), timezone(timedelta(hours=-12))])
)
weights = st.floats(0, allow_infinity=False)
fractions = st.floats(0, 1)
contexts = st.builds(
    SalienceContext,
    last_access_ts=instants,
    access_count=st.integers(0, 10**400),
    rule_match_count=st.integers(0, 10**400),
    weights=st.dictionaries(st.sampled_from(["recency", "relevance", "importance"]), weights),
    decay_tau_seconds=st.floats(0, exclude_min=True, allow_infinity=False),
)


def context(**overrides: Any) -> SalienceContext:
    """Return what is known of an episode read an hour ago, often enough to count in full."""
    fields: dict[str, Any] = {
        "last_access_ts": at(-HOUR),
        "access_count": 20,
        "rule_match_count": 15,
    }
    return SalienceContext(**(fields | overrides))


async def test_the_score_equals_the_published_value() -> None:
    scorer = RuleBasedScorer(clock=FakeClock())

    assert await scorer.score(episode(), context()) == pytest.approx(0.9201122956331096, rel=1e-9)


async def test_a_weight_above_1_counts_in_full_and_the_score_stays_within_1() -> None:
    scorer = RuleBasedScorer(clock=FakeClock())

    usual = await scorer.score(episode(), context(access_count=1))
    heavy = await scorer.score(episode(), context(access_count=1, weights={"recency": 2}))
    most = await scorer.score(episode(), context(weights={"recency": 1e308}))

    assert heavy == pytest.approx(2 * usual)
    assert most == 1.0


def test_a_gate_may_have_a_minimum_that_only_weights_above_1_reach() -> None:
    heavy = rule(salience={"min": 0.3, "weights": {"recency": 2}})

    assert heavy.salience is not None
    with pytest.raises(ValidationError, match=r"no episode reaches 0\.3"):
        rule(salience={"min": 0.3})


def test_the_context_has_the_specified_defaults() -> None:
    assert context().query_embedding is None
    assert context().weights == {"recency": 1.0, "relevance": 0.0, "importance": 0.0}
    assert context().decay_tau_seconds == 86_400.0


@pytest.mark.slow
@given(contexts, instants, st.floats(), st.floats())
def test_every_score_is_from_0_to_1(
    known: SalienceContext, now: datetime, relevance: float, importance: float
) -> None:
    assert 0 <= salience(known, at=now, relevance=relevance, importance=importance) <= 1


@pytest.mark.slow
@given(contexts, instants, st.timedeltas(timedelta(0), timedelta(days=4_000)))
def test_earlier_access_never_increases_salience(
    known: SalienceContext, now: datetime, earlier: timedelta
) -> None:
    try:
        older = known.model_copy(update={"last_access_ts": known.last_access_ts - earlier})
    except OverflowError:
        return

    assert salience(older, at=now) <= salience(known, at=now)


@pytest.mark.slow
@given(contexts, st.integers(0, 10**6), st.integers(0, 10**6), fractions, fractions)
def test_more_reads_and_matches_never_decrease_salience(
    known: SalienceContext, reads: int, matches: int, relevance: float, importance: float
) -> None:
    more = known.model_copy(
        update={
            "access_count": known.access_count + reads,
            "rule_match_count": known.rule_match_count + matches,
        }
    )

    before, after = (
        salience(each, at=START, relevance=relevance, importance=importance)
        for each in (known, more)
    )
    assert before <= after


def test_recency_falls_by_a_factor_of_e_within_tau() -> None:
    now, later = (
        salience(context(last_access_ts=START, decay_tau_seconds=HOUR), at=when)
        for when in (START, at(HOUR))
    )

    assert later / now == pytest.approx(1 / math.e)


@pytest.mark.parametrize(
    "last",
    [
        pytest.param(datetime(9999, 12, 31, 23, tzinfo=timezone(-timedelta(hours=5))), id="end"),
        pytest.param(START + timedelta(days=3_653), id="ten years ahead"),
    ],
)
def test_access_in_the_future_counts_as_an_access_now(last: datetime) -> None:
    ahead = salience(context(last_access_ts=last), at=START)

    assert ahead == salience(context(last_access_ts=START), at=START)


async def test_a_timestamp_without_a_time_zone_is_utc() -> None:
    naive = context(last_access_ts=at(-HOUR).replace(tzinfo=None))
    in_another_zone = context(last_access_ts=at(-HOUR).astimezone(timezone(timedelta(hours=9))))

    scorer = RuleBasedScorer(clock=FakeClock())

    scores = {await scorer.score(episode(), each) for each in (naive, in_another_zone, context())}
    assert len(scores) == 1


async def test_scorer_without_a_clock_uses_the_machines_clock() -> None:
    now = SystemClock().now()

    score = await RuleBasedScorer().score(episode(), context(last_access_ts=now))

    assert 0.9 < score < 1


@pytest.mark.parametrize(
    "wrong",
    [
        pytest.param({"decay_tau_seconds": 0}, id="tau 0"),
        pytest.param({"decay_tau_seconds": -1}, id="tau negative"),
        pytest.param({"decay_tau_seconds": math.inf}, id="tau infinite"),
        pytest.param({"decay_tau_seconds": math.nan}, id="tau no number"),
        pytest.param({"weights": {"recency": math.nan}}, id="weight no number"),
        pytest.param({"weights": {"recency": -0.1}}, id="weight negative"),
        pytest.param({"weights": {"importance": math.inf}}, id="weight infinite"),
        pytest.param({"weights": {"novelty": 0.5}}, id="weight unknown"),
        pytest.param({"access_count": -1, "rule_match_count": -1}, id="counts negative"),
        pytest.param({"query_embedding": [math.nan]}, id="direction no number"),
    ],
)
def test_an_invalid_context_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        context(**wrong)


def test_a_missing_weight_has_its_default() -> None:
    assert context(weights={"importance": 0.5}).weights == {
        "recency": 1.0,
        "relevance": 0.0,
        "importance": 0.5,
    }


@pytest.mark.parametrize(
    ("value", "importance"),
    [
        (0.5, 0.5),
        (1, 1.0),
        (0, 0.0),
        (True, 0.0),
        ("0.5", 0.0),
        (None, 0.0),
        (1.5, 0.0),
        (-0.5, 0.0),
        (math.nan, 0.0),
        (math.inf, 0.0),
        (10**400, 0.0),
        ([1], 0.0),
    ],
)
def test_importance_is_a_number_from_0_to_1_or_nothing(value: Any, importance: float) -> None:
    assert importance_of({"importance": value}) == importance


async def test_importance_counts_by_its_weight() -> None:
    only = context(weights={"recency": 0, "importance": 0.5}, access_count=10**3)
    scorer = RuleBasedScorer(clock=FakeClock())

    scores = [await scorer.score(episode(metadata={"importance": n}), only) for n in (0, 0.5, 1)]

    assert scores == pytest.approx([0, 0.25 * math.tanh(3), 0.5 * math.tanh(3)])


def test_cosine_measures_the_angle_between_two_vectors() -> None:
    assert cosine([1, 0], [2, 0]) == 1
    assert cosine([1, 0], [0, 3]) == 0
    assert cosine([1, 1], [-1, -1]) == pytest.approx(-1)
    assert cosine([3, 0], [1, 1]) == pytest.approx(math.sqrt(0.5))


@given(st.lists(st.floats(), max_size=4), st.lists(st.floats(), max_size=4))
def test_cosine_of_any_two_lists_is_from_minus_1_to_1(
    left: list[float], right: list[float]
) -> None:
    assert -1 <= cosine(left, right) <= 1


class Compass(FakeEmbedder):
    """An embedder that knows two texts."""

    def __init__(self) -> None:
        self.embedded: list[str] = []

    def embed(self, texts: Sequence[str]) -> list[tuple[float, ...]]:
        self.embedded += texts
        return [(1.0, 0.0) if "tea" in text else (0.0, 1.0) for text in texts]


async def test_relevance_is_measured_by_the_meaning_of_texts() -> None:
    compass = Compass()
    scorer = EmbeddingScorer(compass, clock=FakeClock())
    query = context(weights={"recency": 0, "relevance": 1}, query_embedding=[1.0, 0.0])

    near = await scorer.score(episode(content="about tea"), query)
    far = await scorer.score(episode(content="about rooms"), query)

    assert near == pytest.approx(math.tanh(2) * math.tanh(3))
    assert far == 0


async def test_without_a_query_no_text_is_embedded_and_no_episode_is_relevant() -> None:
    compass = Compass()
    scorer = EmbeddingScorer(compass, clock=FakeClock())

    score = await scorer.score(episode(), context(weights={"relevance": 1}))

    assert score == await RuleBasedScorer(clock=FakeClock()).score(episode(), context())
    assert compass.embedded == []


def test_the_scorers_fulfil_the_specified_protocol() -> None:
    assert isinstance(RuleBasedScorer(), SalienceScorer)
    assert isinstance(EmbeddingScorer(Compass()), SalienceScorer)
    assert not isinstance(Compass(), SalienceScorer)


def test_a_new_episode_has_a_salience_above_0() -> None:
    gate = Gate(min=0.1)

    fell_short = gate.judge(microseconds(START), NEVER, at=START)

    assert fell_short is not None
    assert fell_short.score == pytest.approx(math.tanh(0.1) * math.tanh(0.2))
    assert (fell_short.least, fell_short.reads) == (0.1, 0)


def test_an_episode_passes_the_gate_only_after_a_recent_read() -> None:
    gate, claimed_at = Gate(min=0.1), microseconds(at(-7 * DAY))

    assert gate.judge(claimed_at, NEVER, at=START)
    assert gate.judge(claimed_at, Access(9, microseconds(START)), at=START) is None
    assert gate.judge(claimed_at, Access(9, claimed_at), at=START)


def test_episode_in_the_future_counts_as_an_episode_now() -> None:
    gate = Gate(min=0.01)

    assert gate.judge(microseconds(at(DAY)), NEVER, at=START) is None


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        pytest.param({"min": 0}, "greater than 0", id="lets everything in"),
        pytest.param({"min": 0.2}, "no episode reaches 0.2", id="lets nothing in"),
        pytest.param({"min": 0.1, "weights": {"recency": 0.5}}, "all are below 0.099", id="weighs"),
        pytest.param({"min": 0.1, "weights": {"relevance": 0.5}}, "go together", id="about what"),
        pytest.param({"min": 0.1, "about": "tea"}, "go together", id="weighs nothing"),
        pytest.param({"min": 0.1, "tau": 0}, "not a duration", id="tau"),
        pytest.param({"min": 0.1, "less": 1}, "Extra inputs", id="unknown"),
    ],
)
def test_an_invalid_gate_is_refused_with_its_reason(wrong: dict[str, Any], why: str) -> None:
    with pytest.raises(ValidationError, match=why):
        rule(salience=wrong)


def test_a_rule_without_a_gate_keeps_its_hash() -> None:
    gated = rule(salience={"min": 0.1})

    assert rule().content_hash == rule(salience=None).content_hash == "cf4801e6502b2b69"
    assert gated.content_hash != rule().content_hash
    assert gated.content_hash != rule(salience={"min": 0.1, "tau": "2h"}).content_hash
