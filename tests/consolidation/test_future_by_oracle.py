"""Versions of the future, in generated histories, against an oracle that shares no code."""

from __future__ import annotations

import asyncio
import tempfile
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slumberd.model.episode import instant, microseconds
from tests.support import oracle
from tests.support.builders import START, rule, triple
from tests.support.open_stores import OpenStores, open_stores
from tests.support.sample_sizes import amount

pytestmark = [pytest.mark.integration, pytest.mark.sampled]

TOLERANCE_SECONDS = 300.0
MINUTE = 60_000_000
NOON = microseconds(START)
SELECTED = "source_node = 'chat'"

puts = st.fixed_dictionaries(
    {
        "id": st.sampled_from(["e0", "e1", "e2"]),
        "minute": st.sampled_from([-90, -30, -1, 0, 4, 5, 6, 30, 90]),
        "object": st.sampled_from(["a", "b"]),
        "predicate": st.sampled_from(["likes", "is"]),
        "intent": st.sampled_from([None, None, None, "delete"]),
        "matched": st.sampled_from([True, True, False]),
    }
)
steps = st.lists(
    st.one_of(
        st.tuples(st.just("put"), puts),
        st.tuples(st.just("fire"), st.sampled_from([0, 1, 20, 60])),
    ),
    max_size=14,
)


class History:
    """The same steps for the stores and for the oracle."""

    def __init__(self, home: OpenStores) -> None:
        self._home = home
        self._rule = rule("all", when_filter=SELECTED)
        self._versions: dict[str, list[dict[str, Any]]] = defaultdict(list)
        self._firings: list[tuple[int, int]] = []
        self._seq, self._now = 0, NOON

    async def put(self, step: dict[str, Any]) -> None:
        # Each put has its own instant, so it is always a new version.
        at = self._now + step["minute"] * MINUTE + self._seq
        metadata = {
            name: step[name] for name in ("object", "predicate", "intent") if step[name] is not None
        }
        put = triple(step["id"], "ada", "", None, timestamp=instant(at)).model_copy(
            update={
                "metadata": {"subject": "ada", **metadata},
                "source_node": "chat" if step["matched"] else "tool",
            }
        )
        await self._home.put(put)
        self._seq += 1
        self._versions[step["id"]].append(
            {
                "seq": self._seq, "at": at, "matched": step["matched"], "id": step["id"],
                "user": put.user, "agent": put.agent, "metadata": put.metadata,
            }
        )  # fmt: skip

    async def fire(self, minutes: int) -> None:
        self._now += minutes * MINUTE
        await self._home.fire(self._rule, when=instant(self._now))
        self._firings.append((self._seq, self._now))

    async def check(self) -> None:
        tolerance = round(TOLERANCE_SECONDS * 1e6)
        counting = [
            oracle.counting_version(versions, self._firings, tolerance)
            for versions in self._versions.values()
        ]
        claims = [
            claim
            for one in counting
            if one is not None and one["matched"]
            for claim in oracle.claims_in(one, "facts")
        ]
        expected = {
            fact_id: claim.object for fact_id, claim in oracle.current_claims(claims, set()).items()
        }
        assert await self._home.objects() == expected
        assert (await self._home.facts.verify())[2] is None


async def run(history: list[tuple[str, Any]], batch: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        async with open_stores(
            Path(folder), batch=batch, future_tolerance_seconds=TOLERANCE_SECONDS
        ) as home:
            done = History(home)
            for kind, step in history:
                await (done.put(step) if kind == "put" else done.fire(step))
            await done.fire(0)
            await done.check()
            await done.fire(180)  # the instants of all versions have come
            await done.check()


@settings(max_examples=amount(20, full=1_500), deadline=None)
@given(history=steps, batch=st.sampled_from([1, 2, 100]))
def test_facts_are_those_of_the_versions_whose_instants_have_come(
    history: list[tuple[str, Any]], batch: int
) -> None:
    asyncio.run(run(history, batch))
