"""A person searches as an agent does, and gets the same hits and the same context."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.builders import at
from tests.support.console_homes import (
    HOSTILE,
    ask_daemon,
    assert_shows,
    console_daemon,
    fresh_id,
    learn,
    likes,
)
from tests.support.console_people import Person, signed_in
from tests.support.http_daemon import HttpDaemon

pytestmark = pytest.mark.acceptance

TEA, COFFEE = fresh_id(), fresh_id()


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HttpDaemon]:
    with console_daemon(tmp_path_factory.mktemp("console") / "home") as running:
        learn(
            running,
            likes(TEA, "green tea", session="morning", timestamp=at(0)),
            likes(COFFEE, "black coffee", session="noon", timestamp=at(60)),
        )
        yield running


@pytest.fixture
def operator(daemon: HttpDaemon) -> Iterator[Person]:
    with signed_in(daemon, "operator") as person:
        yield person


def test_page_shows_what_an_agent_gets(daemon: HttpDaemon, operator: Person) -> None:
    with daemon.with_token("ana") as agent:
        hits = agent.post("/v1/search", json={"query": "what do I like"}).json()["hits"]
        context = agent.post("/v1/context", json={"question": "what do I like"}).json()

    seen = operator.go("/search", q="what do I like", user="ana")

    assert seen.status == 200
    assert_shows(seen, f"{len(hits)} hits", *(hit["text"] for hit in hits))
    assert f"{context['tokens']} of 4,096 tokens" in seen.text
    assert " ".join(context["text"].split()) in seen.text
    assert len(hits) > 1


def test_page_shows_what_took_the_place_of_a_sentence(daemon: HttpDaemon, operator: Person) -> None:
    user = fresh_id()
    old, new = (
        likes(fresh_id(), what, user=user, timestamp=at(n))
        for n, what in enumerate(["tea", HOSTILE])
    )
    learn(daemon, old, new)

    seen = operator.go("/search", q="tea", user=user, kinds="episode")

    assert f"replaced 2026-01-01 12:00:01: ana likes {HOSTILE}" in seen.text


def test_each_hit_leads_to_its_page(operator: Person) -> None:
    seen = operator.go("/search", q="tea", user="ana", kinds="episode")

    assert seen.page.links[TEA] == f"/console/episode?id={TEA}&user=ana"


def test_fields_narrow_the_search(operator: Person) -> None:
    both = operator.go("/search", q="like", user="ana", kinds="episode")
    one = operator.go("/search", q="like", user="ana", kinds="episode", limit="1")
    early = operator.go("/search", q="like", user="ana", kinds="episode", as_of=at(30).isoformat())
    noon = operator.go("/search", q="like", user="ana", kinds="episode", session="noon")
    sure = operator.go("/search", q="like tea", user="ana", kinds="episode", min_score="1")

    assert "2 hits" in both.text
    assert "1 hit " in one.text
    assert "1 hit " in early.text
    assert "I like green tea" in early.text
    assert "1 hit " in noon.text
    assert "0 hits No fact or episode answers the question." in sure.text


def test_budget_bounds_the_context(operator: Person) -> None:
    seen = operator.go("/search", q="tea", user="ana", budget="0")

    assert_shows(seen, "0 of 0 tokens", "The context is empty.")


@pytest.mark.path
@pytest.mark.parametrize(
    ("field", "text", "problem"),
    [
        pytest.param("limit", "0", "at least 1 is needed, not 0", id="no hits"),
        pytest.param("limit", "ten", "a whole number is needed", id="a word for a number"),
        pytest.param("min_score", "2", "at most 1 is needed", id="too sure"),
        pytest.param("budget", "-1", "at least 0 is needed, not -1", id="fewer than no tokens"),
        pytest.param("as_of", "yesterday", "an instant with an offset is needed", id="no instant"),
        pytest.param("as_of", "2026-03-01T00:00:00", "an instant with an offset", id="no offset"),
        pytest.param("kinds", "dream", "'episode' or 'fact' is needed", id="unknown kind"),
    ],
)
def test_mistake_stands_beside_its_field(
    operator: Person, field: str, text: str, problem: str
) -> None:
    seen = operator.go("/search", q="tea", user="ana", **{field: text})

    assert seen.status == 400
    assert_shows(seen, "Nothing was searched. Correct the fields that are marked.", problem)
    assert f'aria-describedby="mistake-{field}"' in seen.html
    assert f'id="mistake-{field}"' in seen.html


def test_form_needs_a_question_and_a_user(operator: Person) -> None:
    seen = operator.go("/search", limit="5")

    assert seen.status == 400
    assert_shows(seen, "enter a question", "enter a user")


def test_link_with_a_user_fills_in_the_form_and_searches_nothing(operator: Person) -> None:
    seen = operator.go("/search", user="ana")

    assert seen.status == 200
    assert seen.form(user="ana").fields["user"] == "ana"
    assert "Context" not in seen.text.replace("Budget of the context, in tokens", "")


def test_reader_searches_only_its_own_user(daemon: HttpDaemon) -> None:
    with signed_in(daemon, "reader") as reader:
        own = reader.go("/search", q="tea")
        other = reader.go("/search", q="tea", user="bob")

    assert "I like green tea" in own.text
    assert other.status == 403


def test_nobody_searches_without_signing_in(daemon: HttpDaemon, operator: Person) -> None:
    operator.send(operator.go("/search").form(form_secret=operator.secret()))

    seen = operator.go("/search", q="tea", user="ana")

    assert seen.status == 303
    assert seen.to.startswith("/console/sign-in?next=")


def test_hostile_content_is_shown_as_text(daemon: HttpDaemon, operator: Person) -> None:
    learn(daemon, likes(fresh_id(), HOSTILE, user="mallory", session=HOSTILE))

    seen = operator.go("/search", q=f"like {HOSTILE}", user="mallory", session=HOSTILE)
    wrong = operator.go("/search", q=HOSTILE, user=HOSTILE, limit=HOSTILE)

    assert_shows(seen, f"I like {HOSTILE}")
    assert_shows(wrong, "a whole number is needed")


def test_long_context_is_shown_as_a_whole(daemon: HttpDaemon, operator: Person) -> None:
    text = "tea " * 5_000 + "the end"
    learn(daemon, likes(fresh_id(), "tea", user="talker", content=text))

    seen = operator.go("/search", q="tea", user="talker", budget="100000")

    assert seen.text.count("tea the end") == ask_daemon(
        daemon, "context", question="tea", user="talker", budget=100_000
    )["text"].count("tea the end")
