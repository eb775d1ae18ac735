"""What a new state directory learns, and the check of its language model."""

from __future__ import annotations

import asyncio
import json
import stat
import sys
from collections.abc import Iterator
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import orjson
import pytest

from slumberd import Memory
from slumberd.cli.own_installation import install_command
from slumberd.client.transports import load_directory
from slumberd.daemon.new_state_directory import Purpose, make_state_directory
from slumberd.operations.facts import KnownFact
from slumberd.rules.settings import Settings, load_settings
from slumberd.tools.rule_testing.loader import case_files, load_trials
from slumberd.tools.rule_testing.runner import run_trial
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

Turn = tuple[str, str]
"""Who speaks, and what."""


@pytest.mark.parametrize("purpose", Purpose)
def test_file_of_rules_is_short_and_passes_its_test(purpose: Purpose, tmp_path: Path) -> None:
    make_state_directory(tmp_path / "m", purpose)
    folder = tmp_path / "m/rules.d"

    trials = load_trials(case_files([folder]), timezone="UTC")

    assert [asyncio.run(run_trial(trial)).ok for trial in trials] == [True, True]
    assert {file.name for file in folder.iterdir()} == {f"{purpose}.yaml", f"{purpose}.test.yaml"}
    assert len((folder / f"{purpose}.yaml").read_text().splitlines()) <= 45
    assert len((folder / f"{purpose}.test.yaml").read_text().splitlines()) <= 30


async def test_search_finds_other_forms_of_a_word_in_a_new_directory(tmp_path: Path) -> None:
    make_state_directory(tmp_path / "m")
    settings, _ = load_directory(tmp_path / "m")
    async with Memory.open(tmp_path / "m", user="ada") as memory:
        for text in (
            "I have been painting the kitchen.", "We went to the market with the children.",
            "It is what I told you about the boat.",
        ):  # fmt: skip
            await memory.remember(text)
        hits = await memory.recall("Who painted?", kinds=["episode"])

    assert settings.search.language == "auto"
    assert hits[0].text == "I have been painting the kitchen."


async def facts_after(directory: Path, *turns: Turn, **further: Any) -> dict[str, set[object]]:
    """Return what a chat loop has learned: objects by subject and predicate."""
    async with Memory.open(directory, user="ada") as memory:
        for speaker, text in turns:
            remembered = await memory.remember(text, speaker=speaker, **further)
            await memory.wait_for(remembered.id)
        return by_key((await memory.facts()).facts)


def by_key(facts: list[KnownFact]) -> dict[str, set[object]]:
    found: dict[str, set[object]] = {}
    for fact in facts:
        said = fact.payload
        found.setdefault(f"{said['subject']} {said['predicate']}", set()).add(said["object"])
    return found


async def test_home_in_a_chat_is_replaced_and_an_allergy_stays(tmp_path: Path) -> None:
    found = await facts_after(
        tmp_path / "m",
        ("user", "Hi! I live in Oslo."),
        ("assistant", "Lovely. I live in the cloud."),
        ("user", "I'm allergic to peanuts."),
        ("user", "I moved to Bergen last week."),
        ("user", "I'm also allergic to penicillin."),
        ("tool", "I work at the weather service."),
    )

    assert found == {
        "ada lives_in": {"Bergen"},
        "ada allergic_to": {"peanuts", "penicillin"},
    }


async def test_what_a_program_states_and_what_the_person_says_share_their_keys(
    tmp_path: Path,
) -> None:
    async with Memory.open(tmp_path / "m", user="ada") as memory:
        stated = await memory.remember("moved", triples=[("ada", "lives_in", "Oslo")])
        await memory.wait_for(stated.id)
        said = await memory.remember("I moved to Bergen.")
        await memory.wait_for(said.id)
        [fact] = (await memory.facts()).facts
        [hit] = [hit for hit in await memory.recall("Where does ada live?") if hit.kind == "fact"]

    assert (fact.payload["object"], hit.trust) == ("Bergen", "extracted")
    assert fact.confidence < 1
    assert fact.payload["extracted"]["span"] == [0, 18]


@pytest.mark.parametrize(
    ("metadata", "expected"),
    [
        pytest.param({"object": "chat.completion"}, {}, id="an object of another kind"),
        pytest.param({"replaces": []}, {}, id="ids that it replaces"),
        pytest.param(
            {"triples": [{"subject": "ada", "predicate": "likes", "object": "tea"}]},
            {"ada likes": {"tea"}},
            id="a list of triples",
        ),
        pytest.param(
            {"subject": "ada", "predicate": "likes", "object": "tea", "confidence": 0.4},
            {},
            id="a guess",
        ),
    ],
)
async def test_text_beside_a_statement_of_its_host_is_not_read(
    tmp_path: Path, metadata: dict[str, Any], expected: dict[str, set[object]]
) -> None:
    found = await facts_after(tmp_path / "m", ("user", "I live in Oslo."), metadata=metadata)

    assert found == expected


async def test_predicate_that_the_vocabulary_does_not_name_holds_many_values(
    tmp_path: Path,
) -> None:
    async with Memory.open(tmp_path / "m", user="ada") as memory:
        for place in ("Oslo", "Rome"):
            stated = await memory.remember(place, triples=[("ada", "flew_to", place)])
            await memory.wait_for(stated.id)
        facts = (await memory.facts()).facts

    assert by_key(facts) == {"ada flew_to": {"Oslo", "Rome"}}


@pytest.mark.slow
async def test_commands_name_the_pattern_that_found_a_fact(tmp_path: Path) -> None:
    await facts_after(tmp_path / "m", ("user", "I moved to Bergen."), id="e1")
    await facts_after(tmp_path / "m", ("user", "I like tea."), id="e2")

    words = [
        ("why", "e1#1"), ("why", "e1#1", "--content"),
        ("facts", "--extracted-by", "conversation/moved", "--json"),
    ]  # fmt: skip
    why, with_content, facts = [
        await asyncio.to_thread(called, *some, "--config", str(tmp_path / "m/slumberd.yaml"))
        for some in words
    ]

    line = "extracted   by conversation/moved, in characters 0 to 18 of the text"
    assert f"\n{line}\n" in why.stdout
    assert f"\n{line}: I moved to Bergen.\n" in with_content.stdout
    [fact] = map(json.loads, facts.stdout.splitlines())
    assert fact["payload"]["extracted"] == {"by": "conversation/moved", "span": [0, 18]}


@pytest.mark.slow
async def test_removed_pattern_and_a_backfill_take_back_all_that_it_learned(
    tmp_path: Path,
) -> None:
    home = tmp_path / "m"
    turns = [
        ("user", "I live in Oslo."), ("user", "I like tea."), ("user", "I moved to Bergen."),
        ("user", "My friend moved to Rome."), ("user", "I no longer like tea."),
    ]  # fmt: skip
    before = await facts_after(home, *turns)
    (home / "rules.d/words").mkdir()
    (home / "rules.d/words/own.yaml").write_text("remove: [conversation/moved, conversation/likes]")
    rules = home / "rules.d/conversation.yaml"
    rules.write_text(
        rules.read_text().replace("conversation}", "conversation, vocabulary: words/own.yaml}")
    )

    done = await asyncio.to_thread(
        called, "backfill", "said", "--config", str(home / "slumberd.yaml")
    )

    assert done.returncode == 0
    assert before["ada lives_in"] == {"Bergen"}
    assert (await facts_after(home))["ada lives_in"] == {"Oslo"}


@pytest.mark.slow
def test_doctor_says_that_a_host_names_its_nodes_as_speakers(tmp_path: Path) -> None:
    home = tmp_path / "m"
    make_state_directory(home)
    episode = {
        "id": "e1", "user": "ada", "session": "s", "agent": "a", "source_node": "node-7",
        "timestamp": "2026-03-01T09:00:00Z", "content": "I live in Oslo.", "metadata": {},
    }  # fmt: skip
    (tmp_path / "e.jsonl").write_text(json.dumps(episode) + "\n")
    config = ("--config", str(home / "slumberd.yaml"))
    called("import", str(tmp_path / "e.jsonl"), *config)
    called("fire", "--all", *config)

    found = json.loads(called("doctor", "--json", *config).stdout)["findings"]

    [finding] = [one for one in found if one["id"] == "rule.no_person"]
    assert finding["subject"] == "rule said"
    assert "speakers are 'node-7'" in finding["problem"]
    assert "`memory.person`" in finding["remedy"]


def test_init_for_tasks_makes_other_rules(tmp_path: Path) -> None:
    done = called("init", str(tmp_path / "m"), "--for", "tasks")

    assert done.returncode == 0
    assert "rules.d/tasks.yaml, rules.d/tasks.test.yaml" in done.stdout
    config = ("--config", str(tmp_path / "m/slumberd.yaml"))
    assert "2 tests: 2 passed, 0 failed" in called("test", *config).stdout


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
    assert install_command("llm") in done.stderr
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
