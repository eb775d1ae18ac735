"""A cadence is exactly one of two things, and says what is wrong with it."""

from __future__ import annotations

import hashlib
from typing import Any

import orjson
import pytest

from slumberd.core.cadence import MOST_EVERY, Cron, Every, cadence_of
from slumberd.core.rule import ConsolidationRule
from tests.builders import rule


def test_every_counts_episodes() -> None:
    assert cadence_of({"every": 100}) == Every(100)


def test_cron_has_an_expression_and_may_have_a_time_zone() -> None:
    assert cadence_of({"cron": "0 3 * * *"}) == Cron("0 3 * * *")
    assert cadence_of({"cron": "@daily", "timezone": "UTC"}) == Cron("@daily", "UTC")


@pytest.mark.parametrize(
    ("document", "problem"),
    [
        pytest.param({}, "exactly one of", id="neither"),
        pytest.param({"every": 1, "cron": "@daily"}, "exactly one of", id="both"),
        pytest.param({"evry": 1}, "unknown key 'evry'", id="slip"),
        pytest.param({"every": 0}, "from 1 to", id="zero"),
        pytest.param({"every": -1}, "from 1 to", id="negative"),
        pytest.param({"every": MOST_EVERY + 1}, "from 1 to", id="huge"),
        pytest.param({"every": True}, "from 1 to", id="boolean"),
        pytest.param({"every": 1.5}, "from 1 to", id="fraction"),
        pytest.param({"every": 1, "timezone": "UTC"}, "goes with 'cron'", id="zone of every"),
        pytest.param({"cron": ""}, "an expression in quotes", id="empty"),
        pytest.param({"cron": 5}, "an expression in quotes", id="number"),
        pytest.param({"cron": "@daily", "timezone": 1}, "a name as", id="zone of cron"),
    ],
)
def test_what_is_no_cadence_is_refused_with_its_reason(
    document: dict[str, Any], problem: str
) -> None:
    with pytest.raises(ValueError, match=problem):
        cadence_of(document)
    with pytest.raises(ValueError, match=problem):
        ConsolidationRule(id="r", cadence=document, when_filter="", then_emits=["facts"])


def test_a_rules_hash_changes_with_anything_in_it() -> None:
    hashes = {
        rule("a").content_hash,
        rule("b").content_hash,
        rule("a", when_filter="1").content_hash,
        rule("a", cadence={"every": 2}).content_hash,
        rule("a", then_emits=["notes"]).content_hash,
    }

    assert len(hashes) == 5
    assert rule("a").content_hash == rule("a").content_hash


def test_content_hash_stays_as_it_was_before_there_were_more_keys() -> None:
    old = {"id": "a", "cadence": {"every": 1}, "when_filter": "", "then_emits": ["facts"]}
    canonical = orjson.dumps(
        old | {"enabled": True, "start": "beginning"}, option=orjson.OPT_SORT_KEYS
    )

    assert rule("a").content_hash == hashlib.sha256(canonical).hexdigest()[:16]


@pytest.mark.parametrize(
    "key", [{"on_missed": "skip"}, {"catchup_window": "1h"}, {"timeout": "10m"}], ids=str
)
def test_content_hash_follows_a_key_that_is_used(key: dict[str, str]) -> None:
    assert rule("a", **key).content_hash != rule("a").content_hash
