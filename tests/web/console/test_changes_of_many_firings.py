"""The page of changes says when it cannot list all firings, and finds rows among many others."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any, cast
from urllib.parse import parse_qs, urlsplit

import pytest

from slumberd.daemon.interfaces import Served
from slumberd.operations.caller import Caller
from slumberd.operations.handlers import Answer, Dispatcher
from slumberd.operations.registry import OPERATIONS
from slumberd.web.console.pages import today
from slumberd.web.console.rendering import Renderer
from slumberd.web.console.visit import BrowserSession, View, Visit
from tests.support.console_people import PageParser
from tests.support.fakes import FakeClock

NOW = datetime(2026, 3, 31, 12, 30, tzinfo=UTC)
ROW = OPERATIONS["deltas"].example.answer["changes"][0]
BATCH = OPERATIONS["report"].example.answer["largest"][0]
NOTHING = dict.fromkeys(OPERATIONS["report"].example.answer["changes"], 0)


class Ledger:
    """Answers the operations that the page asks, from firings that are one minute apart.

    Attributes:
        asked: The requests for reports.

    Args:
        firings: How many firings there are; the newest is of now.
        kinds: The kinds of the rows of each.
    """

    def __init__(self, firings: int, kinds: list[str]) -> None:
        self.asked: list[Mapping[str, Any]] = []
        self._firings = firings
        self._kinds = kinds

    async def report(self, request: Answer, _: Caller) -> Answer:
        """Return the newest firings of the time as the largest."""
        self.asked.append(request)
        until = datetime.fromisoformat(request.get("until", "9999-01-01T00:00:00Z"))
        counts = {
            **NOTHING,
            "learned": self._kinds.count("add"),
            "quarantined": self._kinds.count("quarantine"),
        }
        found = [
            {**BATCH, **counts, "firing_id": f"home@{n}", "at": f"{at.isoformat()}"}
            for n in range(self._firings)
            if (at := NOW - timedelta(minutes=n)) < until
        ]
        return {**OPERATIONS["report"].example.answer, "largest": found[: request["limit"]]}

    async def deltas(self, request: Answer, _: Caller) -> Answer:
        """Return a page of the rows of a firing."""
        rows = [
            {**ROW, "seq": n, "kind": kind, "user": ""} for n, kind in enumerate(self._kinds, 1)
        ]
        page = rows[request["after"] :][: request["limit"]]
        last = page[-1]["seq"] if page else request["after"]
        return {"changes": page, "last": last, "more": len(page) == request["limit"]}

    async def quarantined(self, _: Answer, __: Caller) -> Answer:
        """Return that nothing is in quarantine."""
        return {"entries": [], "next": None, "totals": {}}

    def show(self, **fields: str) -> tuple[View, str]:
        """Return the page, and its HTML."""
        handlers = {
            OPERATIONS["report"].name: self.report,
            OPERATIONS["deltas"].name: self.deltas,
            OPERATIONS["quarantined"].name: self.quarantined,
        }
        served = SimpleNamespace(dispatcher=Dispatcher(handlers), clock=FakeClock(NOW))
        visit = Visit(
            served=cast("Served", served),
            caller=Caller.here(),
            session=BrowserSession(None, 0, 0.0),
            path="/changes",
            fields=fields,
        )
        view = asyncio.run(today.show_changed(visit))
        assert isinstance(view, View)
        frame: dict[str, Any] = {
            "title": "",
            "caller": None,
            "menu": [],
            "here": "",
            "form_secret": "",
        }
        return view, Renderer({}).render(view.template, {**view.values, **frame})


def query_of(address: str) -> dict[str, str]:
    return {name: value for name, [value] in parse_qs(urlsplit(address).query).items()}


def test_page_that_lists_all_firings_says_nothing_of_missing_ones() -> None:
    view, html = Ledger(3, ["add"]).show()

    assert view.values["parts_of_time"] == []
    assert "may be missing" not in PageParser(html).text


@pytest.mark.parametrize(
    ("since", "until", "parts"),
    [
        pytest.param("2026-03-01T06:00:00+00:00", None, 31, id="days"),
        pytest.param("2026-03-30T00:00:00+00:00", "2026-03-31T00:00:00+00:00", 24, id="hours"),
        pytest.param("2026-03-31T11:30:00+00:00", None, 60, id="minutes"),
        pytest.param("2026-03-31T12:29:30+00:00", None, 0, id="less than a minute"),
    ],
)
def test_time_with_too_many_firings_is_divided(since: str, until: str | None, parts: int) -> None:
    given = {"counted": "learned", "rule": "home", "since": since}
    view, html = Ledger(2_000, ["add"]).show(**given, **({"until": until} if until else {}))

    found = [query_of(to) for _, to in view.values["parts_of_time"]]
    assert len(found) == parts
    assert "may be missing" in PageParser(html).text
    assert all(one["counted"] == "learned" and one["rule"] == "home" for one in found)
    # The parts follow each other without a gap, from the first instant to the last.
    ends = [
        (datetime.fromisoformat(one["since"]), datetime.fromisoformat(one["until"]))
        for one in found
    ]
    assert [begin for begin, _ in ends[:-1]] == [end for _, end in ends[1:]]
    assert not found or ends[-1][0] == datetime.fromisoformat(since)
    assert not found or ends[0][1] >= min(NOW, datetime.fromisoformat(until or NOW.isoformat()))


def test_day_among_many_firings_is_read_by_itself() -> None:
    ledger = Ledger(2_000, ["add"])
    day = {"since": "2026-03-30T00:00:00+00:00", "until": "2026-03-31T00:00:00+00:00"}

    view, _ = ledger.show(counted="learned", **day)

    [request] = ledger.asked
    assert (request["since"], request["until"]) == (day["since"], day["until"])
    assert view.values["batches"] == 1_000


def test_last_hours_among_many_firings_are_read_by_themselves() -> None:
    ledger, since = Ledger(2_000, ["add"]), "2026-03-31T06:00:00+00:00"

    ledger.show(since=since)

    assert [request.get("since") for request in ledger.asked] == [None, since]
    assert not any("until" in request for request in ledger.asked)


def test_time_before_the_last_year_is_read_by_itself() -> None:
    ledger = Ledger(1, ["add"])

    ledger.show(since="2020-01-01", until="2020-02-01")

    [request] = ledger.asked
    assert (request["since"][:10], request["until"][:10]) == ("2020-01-01", "2020-02-01")


@pytest.mark.slow
def test_rows_among_many_others_are_found_page_by_page() -> None:
    kinds = [*["add"] * 2_500, *["quarantine"] * 150, *["add"] * 900, "quarantine"]
    ledger, fields = Ledger(2, kinds), {"counted": "quarantined"}
    counts = []

    while fields:
        view, html = ledger.show(**fields)
        counts.append(len(re.findall("<tr><td>", html)))
        assert len(re.findall("<h2>", html)) == len(
            {one["firing_id"] for one, _ in view.values["firings"]}
        )
        fields = query_of(view.values["next"]) if view.values["next"] else {}

    assert counts == [100, 100, 100, 2]
