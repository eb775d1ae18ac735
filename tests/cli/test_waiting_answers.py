"""Commands explain what waits for the answer of a language model, and what would end it."""

from __future__ import annotations

from pathlib import Path

import orjson
import pytest

from tests.daemon.test_model_daemon import home_of, put
from tests.support.daemons import Home
from tests.support.model_server import completion, server_in_a_thread

pytestmark = [pytest.mark.integration, pytest.mark.slow]


def why_not(home: Home, episode: str) -> list[dict[str, object]]:
    """Return the outcomes of an episode, without their rows."""
    keys = ("fact_id", "outcome", "reason", "unrecorded", "would_change")
    lines = home.call("why-not", episode, "--json").stdout.splitlines()
    return [{key: line[key] for key in keys} for line in map(orjson.loads, lines)]


@pytest.mark.parametrize("fired", [pytest.param(False, id="never"), pytest.param(True, id="once")])
def test_pending_episode_waits_for_the_answer_until_it_is_recorded(
    tmp_path: Path, *, fired: bool
) -> None:
    with server_in_a_thread() as server:
        home = home_of(tmp_path, server)
        put(home, "I like tea")
        if fired:
            home.call("fire", "chat")
        waiting = why_not(home, "e1")
        shown = home.call("why-not", "e1").stdout
        home.call("extract", "chat")
        recorded = why_not(home, "e1")

    pending = {"fact_id": "e1", "outcome": "pending", "reason": ""}
    waits = "it waits for the answer of the language model; `slumberd extract chat` asks now"
    assert waiting == [pending | {"unrecorded": True, "would_change": waits}]
    assert waits in " ".join(shown.split())
    assert recorded == [pending | {"unrecorded": False, "would_change": "`slumberd fire chat`"}]


def test_episode_of_an_invalid_answer_is_in_quarantine_until_the_model_is_asked_again(
    tmp_path: Path,
) -> None:
    with server_in_a_thread() as server:
        server.will(completion("tea!"), completion("tea!"))
        home = home_of(tmp_path, server)
        put(home, "I like tea")
        home.call("extract", "chat")
        home.call("fire", "chat")
        [invalid] = why_not(home, "e1")
        shown = home.call("why-not", "e1").stdout
        home.call("extract", "chat", "--again")
        home.call("quarantine", "retry", "e1")
        facts = home.facts()

    assert invalid == {
        "fact_id": "e1",
        "outcome": "quarantined",
        "reason": "answer_invalid",
        "unrecorded": False,
        "would_change": "`slumberd extract chat --again` asks again, then `slumberd quarantine"
        " retry e1`; or repair the episode or the rule",
    }
    assert "Invalid JSON" in shown
    assert [fact["id"] for fact in facts] == ["e1#1"]


def test_episode_of_a_refused_answer_has_the_same_remedy(tmp_path: Path) -> None:
    with server_in_a_thread() as server:
        refusal = completion("", refusal="I cannot help with that")
        server.will(refusal, refusal)
        home = home_of(tmp_path, server)
        put(home, "I like tea")
        home.call("extract", "chat")
        home.call("fire", "chat")
        [refused] = why_not(home, "e1")

    assert (refused["outcome"], refused["reason"]) == ("quarantined", "answer_refused")
    assert str(refused["would_change"]).startswith("`slumberd extract chat --again` asks again")
