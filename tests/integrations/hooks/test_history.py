"""Which turns of a transcript are new, which are copies, and which were taken back."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slumberd.integrations.hooks.history import TranscriptHistory, names_in
from slumberd.integrations.hooks.putting import read_line
from tests.support.sample_sizes import amount
from tests.support.transcripts import (
    CLAUDE_CODE,
    CODEX,
    claude_line,
    codex_line,
    codex_message,
    line_of,
)

pytestmark = pytest.mark.unit

Standing = dict[str, bool]
"""Whether each turn counts, by its text, in the order of the first puts."""


def standing(agent: str, lines: Sequence[bytes], cuts: Iterable[int] = ()) -> Standing:
    """Return the turns after hooks that read up to some lines, each from what the last one kept."""
    found: Standing = {}
    known: dict[str, Any] = {}
    at = 0
    for cut in (*sorted(cuts), len(lines)):
        history = TranscriptHistory(known)
        while at < cut:
            take(found, history.add(read_line(agent, lines[at], "s"), at), agent, lines)
            at += 1
        take(found, history.flush(), agent, lines)
        known = json.loads(json.dumps(history.document()))
    return found


def take(found: Standing, steps: Iterable[Any], agent: str, lines: Sequence[bytes]) -> None:
    for step in steps:
        turn = step.turn or read_line(agent, lines[step.offset], "s").turn
        assert turn is not None
        if step.withdrawn is None:
            assert turn.text not in found, "a turn is put once"
        found[turn.text] = not step.withdrawn


def chained(*turns: tuple[str, str | None, str], **fields: Any) -> list[bytes]:
    """Return lines of Claude Code: of each its name, the name of its parent, and who speaks."""
    return [
        claude_line(speaker, name, n, uuid=name, parentUuid=parent, **fields)
        for n, (name, parent, speaker) in enumerate(turns)
    ]


U, A = "user", "assistant"
TALK = [("u1", None, U), ("a1", "u1", A), ("u2", "a1", U), ("a2", "u2", A)]


@pytest.mark.parametrize(
    ("more", "taken_back"),
    [
        pytest.param([("u3", "a2", U)], set(), id="linear"),
        pytest.param([("u3", "a1", U)], {"u2", "a2"}, id="rewound"),
        pytest.param([("u3", "a1", U), ("a3", "u3", A)], {"u2", "a2"}, id="and answered"),
        pytest.param([("u3", "a1", U), ("u4", "a1", U)], {"u2", "a2", "u3"}, id="twice"),
        pytest.param([("u3", "a1", U), ("u4", "a2", U)], {"u3"}, id="and back"),
        pytest.param([("u3", "a1", U), ("a4", "a2", A)], {"u2", "a2", "a4"}, id="late answer"),
        pytest.param([("a3", "u2", A), ("u3", "a3", U)], set(), id="two answers"),
        pytest.param([("u3", None, U)], set(), id="another beginning"),
        pytest.param([("u3", "gone", U), ("u4", "gone", U)], {"u3"}, id="unknown parent"),
        pytest.param([("u3", "a2", U), ("u4", "a1", U), ("u5", "a2", U)], {"u3", "u4"}, id="deep"),
    ],
)
def test_turn_beside_a_later_one_of_the_person_is_taken_back(
    more: list[tuple[str, str | None, str]], taken_back: set[str]
) -> None:
    lines = chained(*TALK, *more)

    found = standing(CLAUDE_CODE, lines)

    assert {name for name, counts in found.items() if not counts} == taken_back
    assert len(found) == len(lines)


@pytest.mark.parametrize(
    "between",
    [
        pytest.param(line_of({"type": "system", "uuid": "x", "parentUuid": "a1"}), id="note"),
        pytest.param(claude_line(U, [{"type": "tool_result"}], uuid="x", parentUuid="a1"),
                     id="output of a tool"),
        pytest.param(claude_line(U, "Hi", uuid="x", parentUuid="a1", isSidechain=True),
                     id="side chain"),
        pytest.param(claude_line(U, "Hi", uuid="x", parentUuid="a1", isMeta=True), id="inserted"),
        pytest.param(claude_line(U, "Hi", uuid="x", parentUuid="a1", isCompactSummary=True),
                     id="summary"),
        pytest.param(claude_line(A, "Hi", uuid="x", parentUuid="a1"), id="another answer"),
    ],
)  # fmt: skip
def test_what_is_no_turn_of_the_person_takes_nothing_back(between: bytes) -> None:
    found = standing(CLAUDE_CODE, [*chained(*TALK), between, *chained(("u3", "a2", U))])

    assert all(found.values())
    assert [*found][-1] == "u3"


def test_compaction_takes_nothing_back_and_a_rewinding_after_it_does() -> None:
    boundary = line_of({"type": "system", "subtype": "compact_boundary", "uuid": "b",
                        "parentUuid": None, "logicalParentUuid": "a2"})  # fmt: skip
    summary = claude_line(U, "a summary", uuid="s", parentUuid="b", isCompactSummary=True)
    compacted = [*chained(*TALK), boundary, summary, *chained(("u3", "s", U), ("a3", "u3", A))]

    assert all(standing(CLAUDE_CODE, compacted).values())
    rewound = standing(CLAUDE_CODE, [*compacted, *chained(("u4", "s", U))])
    assert {name for name, counts in rewound.items() if not counts} == {"u3", "a3"}


def test_compaction_of_a_part_takes_nothing_back() -> None:
    boundary = line_of({"type": "system", "subtype": "compact_boundary", "uuid": "b",
                        "parentUuid": None, "logicalParentUuid": "a1"})  # fmt: skip

    lines = [*chained(*TALK), boundary, *chained(("u3", "b", U))]

    assert all(standing(CLAUDE_CODE, lines).values())


@pytest.mark.parametrize(
    "content",
    ["<command-name>/model</command-name>", "<local-command-stdout>x</local-command-stdout>"],
)
def test_commands_are_passed_over(content: str) -> None:
    note = claude_line(U, content, uuid="n", parentUuid="a1")
    lines = [*chained(*TALK[:2]), note, *chained(("u2", "n", U), ("u3", "a1", U))]

    assert standing(CLAUDE_CODE, lines) == {"u1": True, "a1": True, "u2": False, "u3": True}


def test_session_of_commands_has_a_person() -> None:
    history = TranscriptHistory({})
    line = claude_line(U, "<command-name>/review</command-name>")

    history.add(read_line(CLAUDE_CODE, line, "s"), 0)

    assert history.counts()["person"] == 1


def test_copies_that_keep_their_instants_are_left_out() -> None:
    lines = [
        head("f", 1_800, forked_from_id="p"), head("p", 1_800), old(U, "u1", 10), old(A, "a1", 60),
        old(U, "u2", 1_900),
    ]  # fmt: skip

    assert [*standing(CODEX, lines)] == ["u2"]


def test_notes_between_messages_are_passed_over() -> None:
    note = line_of({"type": "system", "uuid": "n", "parentUuid": "a1"})
    lines = [*chained(*TALK[:2]), note, *chained(("u2", "n", U), ("u3", "a1", U))]

    assert standing(CLAUDE_CODE, lines) == {"u1": True, "a1": True, "u2": False, "u3": True}


@st.composite
def trees(draw: st.DrawFn) -> list[tuple[str, str | None, str]]:
    """Return a conversation in which the person often goes back."""
    turns: list[tuple[str, str | None, str]] = [("t0", None, U)]
    for n in range(1, draw(st.integers(1, 12))):
        parent = f"t{draw(st.integers(0, n - 1))}"
        turns.append((f"t{n}", parent, draw(st.sampled_from([U, U, A]))))
    return turns


def taken_back_in(turns: Sequence[tuple[str, str | None, str]]) -> set[str]:
    """Return what was taken back, by the law alone: read in whole, and backwards."""
    parents = {name: parent for name, parent, _ in turns}
    persons = [name for name, _, speaker in turns if speaker == U]

    def way_to(name: str | None) -> list[str]:
        return [] if name is None else [*way_to(parents[name]), name]

    way = way_to(persons[-1])
    left = {
        one
        for one in persons
        if one not in way
        and any(parents[one] == parents[other] is not None for other in persons if other in way)
    }
    return {name for name in parents if left.intersection(way_to(name))}


@settings(max_examples=amount(200, full=2_000), deadline=None)
@given(turns=trees(), cuts=st.lists(st.integers(0, 12), max_size=4))
def test_taken_back_is_what_the_law_says(
    turns: list[tuple[str, str | None, str]], cuts: list[int]
) -> None:
    lines = chained(*turns)

    found = standing(CLAUDE_CODE, lines, [min(cut, len(lines)) for cut in cuts])

    assert {name for name, counts in found.items() if not counts} == taken_back_in(turns)
    assert found.keys() == {name for name, _, _ in turns}


def kept(lines: Sequence[bytes], asked: dict[str, str], cuts: Iterable[int]) -> set[str]:
    """Return the turns that a memory has, which hears what the person asks to forget."""
    found: set[str] = set()
    known: dict[str, Any] = {}
    at = 0
    for cut in (*sorted(cuts), len(lines)):
        history = TranscriptHistory(known)
        while at < cut:
            steps = history.add(read_line(CLAUDE_CODE, lines[at], "s"), at)
            at += 1
            while steps:
                step = steps.pop(0)
                turn = read_line(CLAUDE_CODE, lines[step.offset], "s").turn
                assert turn is not None
                if step.number in history.forgotten:
                    found.discard(turn.text)
                elif turn.text in asked:
                    also_before = asked[turn.text] == "that"
                    steps = [*history.forget(step.number, also_before=also_before), *steps]
                else:
                    found.add(turn.text)
        known = json.loads(json.dumps(history.document()))
    return found


def forgotten_in(turns: Sequence[tuple[str, str | None, str]], asked: dict[str, str]) -> set[str]:
    """Return what is to be forgotten, by the sentences of the documentation alone."""
    parents = {name: parent for name, parent, _ in turns}
    speakers = {name: speaker for name, _, speaker in turns}

    def person_before(name: str) -> str | None:
        parent = parents[name]
        return parent if parent is None or speakers[parent] == U else person_before(parent)

    before = {person_before(name) for name, request in asked.items() if request == "that"}

    def goes(name: str) -> bool:
        if speakers[name] == U:
            return name in asked or name in before
        parent = parents[name]
        return parent is not None and goes(parent)

    return {name for name in parents if goes(name)}


@settings(max_examples=amount(200, full=2_000), deadline=None)
@given(
    turns=trees(),
    requests=st.lists(st.sampled_from(["", "", "this", "that"]), min_size=12, max_size=12),
    cuts=st.lists(st.integers(0, 12), max_size=4),
)
def test_what_the_person_asks_to_forget_goes_with_the_replies_in_every_branch(
    turns: list[tuple[str, str | None, str]], requests: list[str], cuts: list[int]
) -> None:
    pairs = zip(turns, requests, strict=False)
    asked = {name: request for (name, _, speaker), request in pairs if request and speaker == U}

    found = kept(chained(*turns), asked, [min(cut, len(turns)) for cut in cuts])

    assert found == {name for name, _, _ in turns} - forgotten_in(turns, asked)


def old(speaker: str, text: str, n: int = 1) -> bytes:
    if speaker == A:
        return codex_message(A, text, n)
    return codex_line("event_msg", {"type": "user_message", "message": text}, n)


def new(speaker: str, text: str, n: int = 1, **fields: Any) -> bytes:
    kind = "UserMessage" if speaker == U else "AgentMessage"
    content = [{"type": "text", "text": text}]
    item = {"type": kind, "id": "i", "content": content}
    return codex_line("event_msg", {"type": "item_completed", "item": item, **fields}, n)


BOUNDARY = codex_line("event_msg", {"type": "task_complete"})


@pytest.mark.parametrize(
    "lines",
    [
        pytest.param([old(U, "a"), old(A, "b")], id="old"),
        pytest.param([new(U, "a"), new(A, "b")], id="new"),
        pytest.param([new(U, "a"), old(U, "a"), new(A, "b"), old(A, "b")], id="new first"),
        pytest.param([old(U, "a"), new(U, "a"), old(A, "b"), new(A, "b")], id="old first"),
        pytest.param([codex_message(U, "a"), new(U, "a"), old(A, "b"), BOUNDARY], id="mixed"),
        pytest.param([new(U, "a"), BOUNDARY, new(A, "b"), BOUNDARY, old(A, "b")], id="boundaries"),
        pytest.param([codex_message(U, "a"), new(U, "a"), new(A, "b"), old(A, "b"), BOUNDARY],
                     id="paginated"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("cut", range(5))
def test_turn_in_both_forms_is_one(lines: list[bytes], cut: int) -> None:
    assert standing(CODEX, lines, [min(cut, len(lines))]) == {"a": True, "b": True}


def test_turn_that_is_said_twice_is_two() -> None:
    history = TranscriptHistory({})
    lines = [new(U, "go on"), old(A, "x"), new(U, "go on", 2), old(A, "y"), old(U, "go on", 3)]

    steps = [step for n, line in enumerate(lines)
             for step in history.add(read_line(CODEX, line, "s"), n)]  # fmt: skip

    assert [step.turn.text for step in steps if step.turn] == ["go on", "x", "go on", "y", "go on"]
    assert len({step.turn.key for step in steps if step.turn}) == 5


def test_key_of_a_turn_in_both_forms_is_that_of_the_old_form() -> None:
    lines = [new(A, "b"), old(A, "b")]
    history = TranscriptHistory({})

    [step] = [step for n, line in enumerate(lines)
              for step in history.add(read_line(CODEX, line, "s"), n)]  # fmt: skip

    assert step.turn == read_line(CODEX, lines[1], "s").turn


def rolled_back(turns: int) -> bytes:
    return codex_line("event_msg", {"type": "thread_rolled_back", "num_turns": turns}, 9)


@pytest.mark.parametrize("form", [old, new])
@pytest.mark.parametrize(
    ("counts", "taken_back"),
    [([1], {"u3", "a3"}), ([2], {"u2", "a2", "u3", "a3"}), ([1, 1], {"u2", "a2", "u3", "a3"}),
     ([9], {"u1", "a1", "u2", "a2", "u3", "a3"}), ([0], set())],
)  # fmt: skip
def test_rolled_back_turns_are_taken_back(
    form: Any, counts: list[int], taken_back: set[str]
) -> None:
    lines = [form(speaker, f"{speaker[0]}{n}", n) for n in (1, 2, 3) for speaker in (U, A)]
    lines += [*map(rolled_back, counts), form(U, "u4", 20)]

    found = standing(CODEX, lines, [3])

    assert {name for name, stands in found.items() if not stands} == taken_back
    assert found["u4"]


PICTURE = [{"type": "image", "source": {}}]


def test_picture_without_words_is_a_turn_that_another_is_taken_back_for() -> None:
    picture = claude_line(U, PICTURE, 5, uuid="p", parentUuid="a1")
    lines = [*chained(*TALK), picture, picture, *chained(("a3", "p", A), ("u3", "a3", U))]

    assert standing(CLAUDE_CODE, lines) == {
        "u1": True, "a1": True, "u2": False, "a2": False, "a3": True, "u3": True,
    }  # fmt: skip


def test_picture_beside_a_later_turn_is_taken_back_with_its_answer() -> None:
    picture = claude_line(U, PICTURE, 5, uuid="p", parentUuid="a2")
    lines = [*chained(*TALK), picture, *chained(("a3", "p", A), ("u3", "a2", U))]

    found = standing(CLAUDE_CODE, lines, [5, 6])

    assert [name for name, stands in found.items() if not stands] == ["a3"]


@pytest.mark.parametrize("is_old", [True, False, None], ids=["old", "new", "both"])
def test_picture_without_words_counts_when_turns_are_rolled_back(is_old: bool | None) -> None:
    content = [{"type": "local_image", "path": "x"}]
    item = {"type": "UserMessage", "id": "i", "content": content}
    forms = [
        codex_line("event_msg", {"type": "user_message", "message": "", "images": ["x"]}, 9),
        codex_line("event_msg", {"type": "item_completed", "item": item}, 9),
    ]
    chosen = forms if is_old is None else forms[:1] if is_old else forms[1:]
    lines = [old(U, "u1", 1), old(A, "a1", 2), *chosen, old(A, "a2", 10), rolled_back(1)]

    assert standing(CODEX, [*lines, old(U, "u3", 20)], [3]) == {
        "u1": True, "a1": True, "a2": False, "u3": True,
    }  # fmt: skip


def head(id: str, n: int, **fields: Any) -> bytes:
    return codex_line("session_meta", {"id": id, **fields}, n)


@pytest.mark.parametrize("form", [old, new])
@pytest.mark.parametrize("fields", [{"forked_from_id": "p"}, {}], ids=["fork", "resumed"])
def test_copied_history_is_left_out(form: Any, fields: dict[str, Any]) -> None:
    lines = [
        head("f", 10, **fields), head("p", 10), form(U, "u1", 10), form(A, "a1", 10),
        form(U, "u2", 30), form(A, "a2", 31), form(U, "u1", 50),
    ]  # fmt: skip

    assert [*standing(CODEX, lines)] == ["u2", "a2", "u1"]


def test_turn_right_after_a_copy_is_new_when_its_beginning_says_so() -> None:
    lines = [
        head("f", 10, forked_from_id="p"), head("p", 10), new(U, "u1", 10),
        codex_line("event_msg", {"type": "task_started", "started_at": 1772355610}, 10),
        new(U, "u2", 10),
    ]  # fmt: skip

    assert [*standing(CODEX, lines)] == ["u2"]


def test_turn_that_the_other_session_does_not_have_is_new() -> None:
    parent = TranscriptHistory({})
    for n, line in enumerate([head("p", 1), old(U, "u1", 1), old(A, "a1", 2)]):
        parent.add(read_line(CODEX, line, "p"), n)
    names = names_in(json.loads(json.dumps(parent.document())))
    fork = TranscriptHistory({}, {"p": names}.get)

    steps = [
        step.turn.text
        for n, line in enumerate(
            [head("f", 10, forked_from_id="p"), head("p", 10), old(U, "u1", 10), old(A, "a1", 10),
             old(U, "u2", 10), old(A, "a2", 10)]
        )
        for step in fork.add(read_line(CODEX, line, "f"), n)
        if step.turn
    ]  # fmt: skip

    assert steps == ["u2", "a2"]


def names_of(*lines: bytes) -> list[str]:
    history = TranscriptHistory({})
    for n, line in enumerate(lines):
        history.add(read_line(CODEX, line, "s"), n)
    return names_in(json.loads(json.dumps(history.document())))


@pytest.mark.parametrize("known", ["pf", "p", "f", ""])
def test_fork_of_a_fork_makes_nothing_new_that_either_has(known: str) -> None:
    first, second = [old(U, "u1", 10), old(A, "a1", 10)], [old(U, "u2", 10), old(A, "a2", 10)]
    names = {"p": names_of(*first), "f": names_of(*first, *second)}
    read = {session: names[session] for session in known}
    fork = TranscriptHistory({}, read.get)
    lines = [
        head("g", 10, forked_from_id="f"), head("f", 10, forked_from_id="p"), head("p", 10),
        *first, *second, old(U, "u3", 30),
    ]  # fmt: skip

    steps = [s for n, line in enumerate(lines) for s in fork.add(read_line(CODEX, line, "g"), n)]

    assert [step.turn.text for step in steps if step.turn] == ["u3"]


def test_fork_that_only_names_what_it_continues_has_no_copies() -> None:
    lines = [head("f", 10, forked_from_id="p", history_base={"thread_id": "p"}), new(U, "u1", 10)]

    assert [*standing(CODEX, lines)] == ["u1"]


def test_copied_turns_are_no_turns_of_the_fork_when_it_is_rolled_back() -> None:
    lines = [
        head("f", 10, forked_from_id="p"), head("p", 10), old(U, "u1", 10), old(A, "a1", 10),
        old(U, "u2", 30), rolled_back(2), old(U, "u3", 40),
    ]  # fmt: skip

    assert standing(CODEX, lines) == {"u2": False, "u3": True}


def test_history_that_a_resumed_session_repeats_is_put_once() -> None:
    talk = [old(U, "u1", 1), old(A, "a1", 2)]
    again = [old(U, "u1", 30), old(A, "a1", 30)]
    lines = [head("s", 1), *talk, head("s", 30), *again, old(U, "u2", 60)]

    assert [*standing(CODEX, lines)] == ["u1", "a1", "u2"]


@pytest.mark.parametrize(
    "fields",
    [{"thread_source": "subagent"}, {"source": {"subagent": {"thread_spawn": {}}}},
     {"source": {"subagent": "review"}}, {"thread_source": "memory"}],
    ids=str,
)  # fmt: skip
def test_thread_of_an_agent_has_no_turns(fields: dict[str, Any]) -> None:
    assert standing(CODEX, [head("s", 1, **fields), old(U, "u1"), old(A, "a1")]) == {}


@pytest.mark.parametrize("source", ["automation", ["user"]], ids=str)
def test_thread_of_an_unknown_beginner_is_reported(source: Any) -> None:
    history = TranscriptHistory({})
    for n, line in enumerate([head("s", 1, thread_source=source), old(U, "u1"), old(A, "a1")]):
        assert history.add(read_line(CODEX, line, "s"), n) == []

    counts = TranscriptHistory(json.loads(json.dumps(history.document()))).counts()
    name = "automation" if source == "automation" else "of an unknown form"
    assert counts["unknown"] == {f"thread_source {name}": 2}
    assert (counts["person"], counts["assistant"]) == (0, 1)


@pytest.mark.parametrize("source", ["user", "cli", "vscode", "exec", None])
def test_thread_of_a_person_has_turns(source: str | None) -> None:
    lines = [head("s", 1, thread_source=source), old(U, "u1"), old(A, "a1")]

    assert [*standing(CODEX, lines)] == ["u1", "a1"]


def test_copy_in_a_forked_session_of_claude_code_is_the_turn_of_the_other() -> None:
    [line] = chained(("u1", None, U), sessionId="f",
                     forkedFrom={"sessionId": "p", "messageUuid": "u0"})  # fmt: skip

    [step] = TranscriptHistory({}).add(read_line(CLAUDE_CODE, line, "f"), 0)

    assert step.is_copy and step.turn is not None
    assert (step.turn.session, step.turn.key) == ("p", "u0")


def test_rewinding_in_a_fork_takes_nothing_of_the_other_session_back() -> None:
    copies = chained(*TALK, forkedFrom={"sessionId": "p", "messageUuid": "x"}, sessionId="f")

    assert all(standing(CLAUDE_CODE, [*copies, *chained(("u3", "a1", U))]).values())


def test_line_that_a_resumed_session_repeats_is_put_once() -> None:
    again = chained(*TALK, timestamp="2026-09-01T10:00:00Z")

    assert [*standing(CLAUDE_CODE, [*chained(*TALK), *again, *chained(("u3", "a2", U))])] == [
        "u1", "a1", "u2", "a2", "u3",
    ]  # fmt: skip


def queued(text: str, n: int = 1) -> bytes:
    return line_of({"type": "attachment", "uuid": f"q{n}", "parentUuid": "a1",
                    "attachment": {"type": "queued_command", "prompt": text}})  # fmt: skip


def taken(text: str) -> bytes:
    return line_of({"type": "queue-operation", "operation": "remove", "content": text,
                    "reason": "absorbed_mid_turn"})  # fmt: skip


@pytest.mark.parametrize(
    "more",
    [
        pytest.param([queued("q")], id="attachment"),
        pytest.param([taken("q")], id="queue"),
        pytest.param([queued("q"), taken("q")], id="attachment first"),
        pytest.param([taken("q"), queued("q")], id="queue first"),
    ],
)
@pytest.mark.parametrize("cut", range(4, 7))
def test_prompt_that_was_typed_meanwhile_is_one_turn(more: list[bytes], cut: int) -> None:
    lines = [*chained(*TALK[:2]), *more, *chained(*TALK[2:])]

    found = standing(CLAUDE_CODE, lines, [min(cut - 2, len(lines))])

    assert [*found] == ["u1", "a1", "q", "u2", "a2"]


@pytest.mark.parametrize(
    "fields", [{"origin": {"kind": "peer"}}, {"origin": {"kind": "weather"}}, {"isMeta": True},
               {"commandMode": "task-notification"}], ids=str,
)  # fmt: skip
@pytest.mark.parametrize("is_first", [True, False], ids=["attachment first", "queue first"])
@pytest.mark.parametrize("cut", range(3, 6))
def test_what_a_program_queued_is_no_word_of_the_person(
    fields: dict[str, Any], is_first: bool, cut: int
) -> None:
    attached = json.loads(queued("q"))
    line = line_of({**attached, "attachment": {**attached["attachment"], **fields}})
    more = [line, taken("q")] if is_first else [taken("q"), line]
    lines = [*chained(*TALK[:2]), *more, *chained(*TALK[2:]), taken("q")]

    found = standing(CLAUDE_CODE, lines[:-1], [min(cut, len(lines) - 1)])
    later = standing(CLAUDE_CODE, lines)

    assert [text for text, counts in found.items() if counts] == ["u1", "a1", "u2", "a2"]
    assert later["q"], "a person may queue the same words"


def test_counts_say_what_was_read() -> None:
    history = TranscriptHistory({})
    for n, line in enumerate([head("s", 1, cli_version="0.153.0"), old(U, "a"), old(A, "b"),
                              codex_line("weather", {}), codex_line("weather", {})]):  # fmt: skip
        history.add(read_line(CODEX, line, "s"), n)
    history.count_unreadable()

    assert history.counts() == {
        "agent_version": "0.153.0", "lines": 6, "person": 1, "assistant": 1,
        "unknown": {"weather": 2, "unreadable": 1},
    }  # fmt: skip


def test_few_kinds_of_unknown_lines_are_counted_by_name() -> None:
    history = TranscriptHistory({})
    for n in range(100):
        kind = f"{n}\x1b" + "x" * 1_000
        history.add(read_line(CODEX, codex_line(kind, {}), "s"), n)

    unknown = history.counts()["unknown"]

    assert sum(unknown.values()) == 100
    assert len(unknown) == 21
    assert all(len(kind) <= 60 and kind.isprintable() for kind in unknown)
