"""A real daemon that asks a scripted language model in the background, and its commands."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from slumberd.daemon.control_socket import ask
from tests.support.asked_models import said
from tests.support.daemons import Home
from tests.support.installation import jsonl
from tests.support.model_server import ModelServer, Reply, server_in_a_thread

pytestmark = pytest.mark.integration

STAGES = [{"extract": {"with": "openai", "model": "tiny", "predicates": ["likes"]}}]


def home_of(folder: Path, server: ModelServer, **settings: Any) -> Home:
    """Return a home whose rule asks the server, with a key."""
    secret = folder / "model.key"
    secret.write_text("s3cret\n")
    secret.chmod(0o600)
    model = {"base_url": server.url, "key_file": str(secret), **settings}
    home = Home(folder, {"language_model": model})
    home.rule("chat", cadence={"every": 1}, stages=STAGES)
    return home


def put(home: Home, *contents: str, first: int = 1) -> None:
    episodes = [said(f"e{n}", text, n) for n, text in enumerate(contents, first)]
    file = home.folder / "episodes.jsonl"
    file.write_bytes(jsonl(*episodes))
    home.call("import", file)


@pytest.mark.slow
def test_daemon_asks_and_promotes_without_a_firing_that_waits(tmp_path: Path) -> None:
    with server_in_a_thread() as server:
        home = home_of(tmp_path, server)
        with home.daemon() as running:
            put(home, "I like tea")
            recorded = running.wait_for("answers.recorded")
            promoted = running.wait_for("delta.applied", lambda event: event["kind"] == "add")

        assert (recorded["rule_id"], recorded["ok"], recorded["triples"]) == ("chat", 1, 1)
        assert promoted["fact_id"] == "e1#1"
        assert "bearer s3cret" in server.headers[0].lower()
        assert not any("s3cret" in str(event) for event in running.seen)


@pytest.mark.slow
def test_status_says_what_the_model_cost_and_that_it_answers(tmp_path: Path) -> None:
    with server_in_a_thread() as server:
        home = home_of(tmp_path, server)
        with home.daemon() as running:
            put(home, "I like tea")
            running.wait_for("answers.recorded")
            model = ask(home.state, "status")["language_model"]

    assert (model["calls"], model["problem"]) == (1, "")
    assert model["tokens"] > 0
    assert model["budget"] == {"calls": 200, "tokens": 500_000, "cost": None}


@pytest.mark.path
def test_status_says_why_the_model_does_not_answer(tmp_path: Path) -> None:
    with server_in_a_thread() as server:
        server.otherwise = lambda _: Reply(503, b"loading")
        home = home_of(tmp_path, server)
        with home.daemon() as running:
            put(home, "I like tea")
            running.wait_for("answers.waiting")
            model = ask(home.state, "status")["language_model"]

    assert model["problem"].startswith("ModelUnavailableError: ")
    assert "HTTP 503: loading" in model["problem"]


@pytest.mark.slow
@pytest.mark.parametrize("resting", ["disabled", "paused"])
def test_daemon_asks_nothing_for_a_rule_that_rests(tmp_path: Path, resting: str) -> None:
    with server_in_a_thread() as server:
        home = home_of(tmp_path, server)
        other = [{"extract": {**STAGES[0]["extract"], "predicates": ["owns"]}}]
        home.rule("a", cadence={"every": 1}, stages=other, enabled=resting != "disabled")
        if resting == "paused":
            home.call("pause", "a")
        with home.daemon() as running:
            put(home, "I like tea")
            recorded = running.wait_for("answers.recorded")

        assert (recorded["rule_id"], len(server.requests)) == ("chat", 1)


@pytest.mark.slow
def test_daemon_promotes_the_rest_when_the_model_is_back(tmp_path: Path) -> None:
    with server_in_a_thread() as server:
        server.will(Reply(503, b"loading"))
        home = home_of(tmp_path, server)
        with home.daemon() as running:
            put(home, "I like tea")
            waiting = running.wait_for("answers.waiting")
            running.wait_for("answers.recorded")
            promoted = running.wait_for("delta.applied", lambda event: event["kind"] == "add")

    assert "HTTP 503: loading" in waiting["message"]
    assert promoted["fact_id"] == "e1#1"


@pytest.mark.path
def test_command_asks_without_a_daemon(tmp_path: Path) -> None:
    with server_in_a_thread() as server:
        home = home_of(tmp_path, server)
        put(home, "I like tea", "I like ale")

        fired = home.call("fire", "chat")
        asked = home.call("extract", "chat")
        again = home.call("extract", "chat")
        done = home.call("fire", "chat")
        facts = home.call("facts", "--user", "alice", "--json")

    assert "rule chat: episodes wait for the answer of its language model" in fired.stderr
    counts = "1 calls; answers: 2 ok, 0 refused, 0 invalid; 2 triples, 0 dropped"
    assert asked.stdout == f"chat: {counts}\n"
    assert again.stdout == "chat: every episode has its answer\n"
    assert "wait" not in done.stderr
    assert '"ale"' in facts.stdout


@pytest.mark.slow
def test_command_says_why_the_model_gives_no_answer(tmp_path: Path) -> None:
    with server_in_a_thread() as server:
        server.otherwise = lambda _: Reply(404, b'{"error": {"message": "no model tiny"}}')
        home = home_of(tmp_path, server)
        put(home, "I like tea")

        failed = home.call("extract", "chat", check=False)

    assert failed.returncode == 78
    assert "HTTP 404: no model tiny" in failed.stderr
    assert "Traceback" not in failed.stderr


@pytest.mark.slow
def test_spent_budget_is_an_error_of_its_own(tmp_path: Path) -> None:
    with server_in_a_thread() as server:
        home = home_of(tmp_path, server, budget={"calls": 0})
        put(home, "I like tea")

        failed = home.call("extract", "chat", check=False)

    assert failed.returncode == 75
    assert "the budget of 0 calls a day is spent" in failed.stderr


@pytest.mark.parametrize(
    ("model", "problem"),
    [
        pytest.param({}, "there is no language model to ask", id="none"),
        pytest.param({"base_url": "127.0.0.1:11434"}, "http://127.0.0.1:11434/v1", id="scheme"),
        pytest.param({"base_url": "http://u:p@h/v1"}, "leave out user", id="password"),
    ],
)
def test_check_reports_a_wrong_language_model(
    tmp_path: Path, model: dict[str, Any], problem: str
) -> None:
    home = Home(tmp_path, {"language_model": model})
    home.rule("chat", cadence={"every": 1}, stages=STAGES)

    checked = home.call("fire", "chat", check=False)

    assert checked.returncode == 78
    assert problem in checked.stderr


def test_key_that_others_can_read_is_refused(tmp_path: Path) -> None:
    with server_in_a_thread() as server:
        home = home_of(tmp_path, server)
        (tmp_path / "model.key").chmod(0o644)

        refused = home.call("extract", "chat", check=False)

    assert refused.returncode == 78
    assert "language_model.key_file" in refused.stderr
    assert "chmod 600" in refused.stderr


@pytest.mark.slow
def test_comparisons_ask_nobody_and_say_what_they_leave_out(tmp_path: Path) -> None:
    with server_in_a_thread() as server:
        home = home_of(tmp_path, server)
        put(home, "I like tea")
        home.call("extract", "chat")
        home.call("fire", "chat")
        asked = len(server.requests)
        candidate = Home(tmp_path / "candidate")
        prompt = {**STAGES[0]["extract"], "instructions": "Write in English."}
        candidate.rule("chat", cadence={"every": 1}, stages=[{"extract": prompt}])

        same = home.call("diff", home.rules)
        changed = home.call("diff", candidate.rules)
        put(home, "I like ale", first=2)
        checked = home.call("check", "--against-data")

        assert len(server.requests) == asked
    assert "leaves out" not in same.stdout
    assert "chat leaves out episodes without an answer of its language model" in changed.stdout
    assert "backfilled and fired" in changed.stdout
    assert "chat waits for the answers of its language model" in checked.stdout
