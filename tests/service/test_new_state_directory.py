"""What a new state directory learns from a chat, and from what programs state."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from slumberd import Memory
from slumberd.client.own_daemons import load_directory
from slumberd.operations.facts import KnownFact
from slumberd.rule_testing.loader import case_files, load_trials
from slumberd.rule_testing.runner import run_trial
from slumberd.service.new_state_directory import Purpose, make_state_directory
from tests.support.cli_runner import called

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
