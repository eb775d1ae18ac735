"""A confidence that is no number passes no filter, on real stores of each engine."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.builders import at, rule, triple
from tests.support.open_stores import open_stores
from tests.support.providers import Provider

pytestmark = pytest.mark.integration

GIVEN: dict[str, Any] = {"high": "high", "text": "0.9", "flag": True, "more": 2, "good": 0.75}


@pytest.mark.parametrize(
    ("condition", "facts", "quarantined"),
    [
        pytest.param("confidence >= 0.5", ["bare", "good"], 0, id="the filter reads it"),
        pytest.param("1", ["bare", "good"], 4, id="the filter reads nothing"),
    ],
)
async def test_malformed_confidence_makes_no_fact(
    provider: Provider, condition: str, facts: list[str], quarantined: int
) -> None:
    said = [
        triple(id, "ada", f"likes-{id}", "tea", metadata={"confidence": value}, timestamp=at(1))
        for id, value in GIVEN.items()
    ]
    async with open_stores(provider) as home:
        await home.put(*said, triple("bare", "ada", "is", "here", timestamp=at(2)))
        report = await home.fire(rule("all", when_filter=condition))

        assert sorted(await home.objects()) == facts
    assert report.channels["facts"].quarantined == quarantined
