"""`slumberd init --model`: it asks first, and writes one complete rule."""

from __future__ import annotations

import asyncio
import stat
import sys
from collections.abc import Iterator
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import orjson
import pytest

from slumberd.config.settings import Settings, load_settings
from slumberd.rule_testing.loader import case_files, load_trials
from slumberd.rule_testing.runner import run_trial
from tests.support.cli_runner import called
from tests.support.model_server import (
    ModelServer,
    Reply,
    completion,
    server_in_a_thread,
    stated,
    turns_in,
)

pytestmark = pytest.mark.integration


@pytest.fixture
def server() -> Iterator[ModelServer]:
    """Provide a scripted server in a thread."""
    with server_in_a_thread() as found:
        yield found


def init(directory: Path, *words: str) -> CompletedProcess[str]:
    return called("init", str(directory), *words)


def settings_in(directory: Path) -> Settings:
    return load_settings(directory / "slumberd.yaml", overrides={}, environ={})


def test_model_is_asked_once_and_the_rule_is_complete(tmp_path: Path, server: ModelServer) -> None:
    done = init(tmp_path / "m", "--model", server.url, "--model-name", "tiny")

    assert done.returncode == 0, done.stderr
    assert [request["model"] for request in server.requests] == ["tiny"]
    settings = settings_in(tmp_path / "m")
    assert settings.language_model.base_url == server.url
    assert settings.language_model.key_file is None
    rules = (tmp_path / "m/rules.d/conversation.yaml").read_text()
    assert '- {with: openai, model: "tiny", may_retract: true}' in rules
    checked = called("check", "--config", str(tmp_path / "m" / "slumberd.yaml"))
    assert checked.returncode == 0, checked.stdout + checked.stderr


def test_rule_with_the_model_passes_its_test(tmp_path: Path) -> None:
    init(tmp_path / "m", "--model", "http://127.0.0.1:9/v1", "--model-name", "t", "--no-check")

    trials = load_trials(case_files([tmp_path / "m/rules.d"]), timezone="UTC")

    results = [asyncio.run(run_trial(trial)) for trial in trials]
    assert [result.ok for result in results] == [True, True, True]


def test_only_model_of_the_server_needs_no_name(tmp_path: Path, server: ModelServer) -> None:
    server.models = ["qwen3:8b"]

    done = init(tmp_path / "m", "--model", server.url)

    assert done.returncode == 0, done.stderr
    assert 'model: "qwen3:8b"' in (tmp_path / "m/rules.d/conversation.yaml").read_text()


@pytest.mark.parametrize("models", [[], ["large", "small"]])
def test_one_of_several_models_must_be_named(
    tmp_path: Path, server: ModelServer, models: list[str]
) -> None:
    server.models = models

    done = init(tmp_path / "m", "--model", server.url)

    assert done.returncode == 64
    assert all(name in done.stderr for name in (*models, "--model-name"))
    assert not (tmp_path / "m").exists()


def test_secret_of_a_variable_is_sent_and_kept_in_a_file_of_its_owner(
    tmp_path: Path, server: ModelServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MY_KEY", "secret-1")

    done = init(tmp_path / "m", "--model", server.url, "--model-key-env", "MY_KEY")

    assert done.returncode == 0, done.stderr
    assert all("authorization: bearer secret-1" in head.lower() for head in server.headers)
    file = tmp_path / "m" / "model.key"
    assert file.read_text() == "secret-1\n"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    settings = settings_in(tmp_path / "m")
    assert settings.language_model.key_file == file
    written = [one.read_text() for one in (tmp_path / "m").rglob("*.yaml")]
    assert not any("secret-1" in text for text in written)
    assert "secret-1" not in done.stdout + done.stderr


@pytest.mark.parametrize(
    "reply",
    [
        pytest.param(Reply(500, b"down"), id="down"),
        pytest.param(Reply(401, b'{"error": "no key"}'), id="secret"),
        pytest.param(Reply(404, b'{"error": "no such model"}'), id="model"),
        pytest.param(Reply(200, b"<html>"), id="another server"),
        pytest.param(Reply(200, b'{"choices": []}'), id="no choice"),
        pytest.param(Reply(200, b"{}", cut=True), id="cut"),
    ],
)
def test_model_that_does_not_answer_leaves_no_file(
    tmp_path: Path, server: ModelServer, reply: Reply
) -> None:
    server.will(reply)

    done = init(tmp_path / "m", "--model", server.url, "--model-name", "tiny")

    assert done.returncode == 69
    assert "nothing was written" in done.stderr
    assert "--no-check" in done.stderr
    assert not (tmp_path / "m").exists()


def test_no_check_asks_nobody(tmp_path: Path) -> None:
    url = "http://127.0.0.1:9/v1"

    done = init(tmp_path / "m", "--model", url, "--model-name", "a: b", "--no-check")

    assert done.returncode == 0, done.stderr
    assert settings_in(tmp_path / "m").language_model.base_url == url


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (("--model", "localhost:11434", "--model-name", "t"), "an address such as"),
        (("--model", "http://ann:pw@host/v1", "--model-name", "t"), "leave out user"),
        (("--model", "http://127.0.0.1:9/v1", "--no-check"), "--model-name"),
        (("--model-name", "t"), "--model-name goes with --model"),
        (("--no-check",), "--no-check goes with --model"),
        (("--model", "http://127.0.0.1:9/v1", "--for", "tasks"), "--for conversation"),
        (("--model", "http://127.0.0.1:9/v1", "--model-key-env", "NO_SUCH"), "'NO_SUCH'"),
    ],
)
def test_wrong_options_write_nothing(tmp_path: Path, words: tuple[str, ...], problem: str) -> None:
    done = init(tmp_path / "m", *words)

    assert done.returncode == 64
    assert problem in done.stderr
    assert not (tmp_path / "m").exists()


def test_directory_with_files_is_refused_before_anybody_is_asked(
    tmp_path: Path, server: ModelServer
) -> None:
    (tmp_path / "file").write_text("mine")

    done = init(tmp_path, "--model", server.url)

    assert done.returncode == 73
    assert server.headers == []


def test_missing_extra_is_reported_with_its_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "httpx2", None)

    done = init(tmp_path / "m", "--model", "http://127.0.0.1:9/v1", "--model-name", "t")

    assert done.returncode == 78
    assert "pip install 'slumberd[llm]'" in done.stderr
    assert not (tmp_path / "m").exists()


def test_answer_of_any_form_counts_as_an_answer(tmp_path: Path, server: ModelServer) -> None:
    server.will(completion(orjson.dumps({"triples": []}).decode()))

    done = init(tmp_path / "m", "--model", server.url, "--model-name", "tiny")

    assert done.returncode == 0


@pytest.mark.slow
def test_new_directory_learns_by_patterns_and_by_the_model(
    tmp_path: Path, server: ModelServer
) -> None:
    def answer(request: dict[str, Any]) -> Reply:
        [turn] = turns_in(request)
        facts = orjson.loads(request["messages"][1]["content"])["facts"]
        ended = [{"turn": "t1", "fact": one["id"], "quote": turn["text"]} for one in facts]
        job = stated("t1", turn["speaker"], "job", "nurse")
        return completion(orjson.dumps({"triples": [job], "ended": ended[:1]}).decode())

    init(tmp_path / "m", "--model", server.url, "--model-name", "tiny")
    server.otherwise = answer
    server.requests.clear()
    config = ("--config", str(tmp_path / "m" / "slumberd.yaml"))
    episodes = [
        {"id": "e1", "content": "I am allergic to peanuts.", "timestamp": "2026-03-01T10:00:00Z"},
        {"id": "e2", "content": "That allergy is gone, says the nurse in me.",
         "timestamp": "2026-03-02T10:00:00Z"},
    ]  # fmt: skip
    scope = {"user": "ada", "session": "s1", "agent": "helper", "source_node": "user"}
    lines = [orjson.dumps(scope | one).decode() for one in episodes]
    (tmp_path / "chat.jsonl").write_text("\n".join(lines))

    imported = called("import", str(tmp_path / "chat.jsonl"), *config)
    asked = called("extract", "said", *config)
    fired = called("fire", "--all", *config)
    facts = called("facts", "--json", *config)

    assert [done.returncode for done in (imported, asked, fired, facts)] == [0, 0, 0, 0]
    assert server.asked() == [["That allergy is gone, says the nurse in me."]]
    found = [orjson.loads(line)["payload"] for line in facts.stdout.splitlines()]
    assert [(one["subject"], one["predicate"], one["object"]) for one in found] == [
        ("ada", "job", "nurse")
    ]
