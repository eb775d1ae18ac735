"""A session over episodes behaves as the SQLite session of the same package."""

from __future__ import annotations

import itertools
import json
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from slumberd import Memory, SyncMemory
from slumberd.client.http_transport import is_repeatable
from slumberd.operations.handlers import Answer
from tests.support.daemons_in_loop import memory_in_loop
from tests.support.fakes import FakeClock
from tests.support.late_imports import LateModule
from tests.support.sample_sizes import amount

if TYPE_CHECKING:
    import agents
    from openai.types import responses

    from slumberd.integrations import openai_agents
else:
    agents = LateModule("agents")
    responses = LateModule("openai.types.responses")
    openai_agents = LateModule("slumberd.integrations.openai_agents")


pytestmark = pytest.mark.integration

NAMES = (f"s{number}" for number in itertools.count())
NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(), inner, max_size=2),
    max_leaves=4,
)
ROLES = st.sampled_from(["user", "assistant", "system"])
MESSAGES = st.fixed_dictionaries({"role": ROLES, "content": st.text()})
ITEMS = MESSAGES | st.dictionaries(st.text(), JSON, max_size=3)
STEPS = st.one_of(
    st.tuples(st.just("add_items"), st.lists(ITEMS, max_size=3)),
    st.tuples(st.just("get_items"), st.none() | st.integers(-1, 5)),
    st.tuples(st.just("pop_item")),
    st.tuples(st.just("clear_session")),
)
LIMITS = st.none() | st.integers(0, 3)


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SyncMemory]:
    with SyncMemory.open(tmp_path_factory.mktemp("sessions") / "m", user="host") as memory:
        yield memory


@pytest.fixture
async def memory(tmp_path: Path) -> AsyncIterator[Memory]:
    async with Memory.open(tmp_path / "m", user="ann") as memory:
        yield memory


async def answers_of(session: agents.Session, steps: list[tuple[str, Any]]) -> list[Any]:
    """Return what a session answers to each call, and at last to two reads."""
    reads: list[tuple[Any, ...]] = [("get_items",), ("get_items", 2)]
    return [await getattr(session, name)(*given) for name, *given in [*steps, *reads]]


@pytest.mark.slow
@pytest.mark.sampled
@settings(max_examples=amount(20, full=500), phases=[Phase.explicit, Phase.generate])
@given(steps=st.lists(STEPS, max_size=8), limit=LIMITS)
def test_any_history_has_the_answers_of_the_sqlite_session(
    shared: SyncMemory, steps: list[tuple[str, Any]], limit: int | None
) -> None:
    name, ours = next(NAMES), shared._memory
    most = agents.SessionSettings(limit=limit)
    reference = agents.SQLiteSession(name, session_settings=most)

    found, expected = (
        shared._run(partial(answers_of, session, steps))
        for session in (openai_agents.SlumberdSession(name, ours, session_settings=most), reference)
    )

    reference.close()
    assert repr(found) == repr(expected)


async def test_items_keep_their_order_when_the_clock_stands_or_goes_back(memory: Memory) -> None:
    clock = FakeClock(NOON)
    session = openai_agents.SlumberdSession("s", memory, clock=clock)
    await session.add_items([{"role": "user", "content": f"{n}"} for n in range(3)])
    clock.advance(-3_600)
    await session.add_items([{"role": "user", "content": f"{n}"} for n in range(3, 5)])

    items = await session.get_items()

    assert [item["content"] for item in items] == ["0", "1", "2", "3", "4"]  # type: ignore[typeddict-item] # messages


@pytest.mark.slow
async def test_session_is_longer_than_a_page(memory: Memory) -> None:
    session = openai_agents.SlumberdSession("s", memory)
    await session.add_items([{"role": "user", "content": f"{n}"} for n in range(130)])
    for _ in range(5):
        await session.pop_item()

    items = await session.get_items()

    assert [item["content"] for item in items] == [f"{n}" for n in range(125)]  # type: ignore[typeddict-item] # messages
    assert await session.get_items(101) == items[-101:]


async def test_other_episodes_and_other_sessions_are_no_items(memory: Memory) -> None:
    await memory.remember("no item", session="s")
    await memory.remember("no item", session="s", metadata={"openai_agents": {"item": 1}})
    other = openai_agents.SlumberdSession("other", memory)
    await other.add_items([{"role": "user", "content": "elsewhere"}])
    session = openai_agents.SlumberdSession("s", memory)
    await session.add_items([{"role": "user", "content": "here"}])

    await session.clear_session()

    assert await session.get_items() == []
    assert len(await other.get_items()) == 1
    assert len(await memory.episodes(session="s")) == 3


async def test_removed_item_is_recorded_and_its_facts_are_withdrawn(memory: Memory) -> None:
    clock = FakeClock(NOON)
    session = openai_agents.SlumberdSession("s", memory, clock=clock)
    await session.add_items([{"role": "user", "content": "I live in Lisbon"}])
    [episode] = await memory.episodes(session="s")
    # A rule without a model reads triples; a host adds them to the episode of the item.
    await memory.remember(
        episode.content,
        id=episode.id,
        session="s",
        when=episode.timestamp,
        triples=[("ann", "lives_in", "Lisbon")],
        metadata=episode.metadata,
    )
    await memory.wait_for(episode.id)
    [fact] = (await memory.facts()).facts

    item = await session.pop_item()
    await memory.wait_for(episode.id)
    [removed] = await memory.episodes(session="s")

    assert fact.payload["object"] == "Lisbon"
    assert item == {"role": "user", "content": "I live in Lisbon"}
    assert (removed.id, removed.content) == (episode.id, "")
    assert removed.metadata["openai_agents"]["removed_at"] == NOON.isoformat()
    assert (await memory.facts()).facts == []
    assert await memory.recall("Lisbon") == []
    assert (await memory.context("Lisbon")).text == ""


CANARY = "canary-41c7"


@pytest.mark.parametrize("removal", ["pop_item", "clear_session"])
async def test_removed_items_leave_no_text_in_their_episodes(memory: Memory, removal: str) -> None:
    session = openai_agents.SlumberdSession("s", memory, clock=FakeClock(NOON))
    items: list[Any] = [
        {"role": "user", "content": CANARY},
        {"type": "function_call", "name": "look", "arguments": CANARY, "call_id": "1"},
        {"type": "function_call_output", "output": CANARY, "call_id": "1"},
        {"type": "reasoning", "summary": [{"type": "summary_text", "text": CANARY}]},
    ]
    await session.add_items(items)

    for _ in items if removal == "pop_item" else (1,):
        await getattr(session, removal)()

    found = await memory.episodes(session="s")
    assert len(found) == len(items)
    assert CANARY not in "".join(each.model_dump_json() for each in found)
    assert {each.metadata["openai_agents"]["removed_at"] for each in found} == {NOON.isoformat()}
    assert await session.get_items() == []
    assert await session.pop_item() is None


async def test_clear_session_removes_the_texts_that_an_older_version_kept(memory: Memory) -> None:
    kept = {"item": json.dumps({"role": "user", "content": CANARY}), "removed_at": "2026-01-02"}
    await memory.remember("", session="s", metadata={"openai_agents": kept})
    session = openai_agents.SlumberdSession("s", memory)

    await session.clear_session()

    [found] = await memory.episodes(session="s")
    assert CANARY not in found.model_dump_json()
    assert found.metadata["openai_agents"] == {"removed_at": "2026-01-02"}


@pytest.mark.slow
async def test_item_that_is_not_json_leaves_nothing_behind(memory: Memory) -> None:
    session = openai_agents.SlumberdSession("s", memory)

    with pytest.raises(TypeError):
        await session.add_items([{"role": "user", "content": "a"}, {"role": object()}])  # type: ignore[list-item] # what is refused

    assert await session.get_items() == []


@pytest.mark.parametrize(
    ("item", "text"),
    [
        pytest.param({"role": "user", "content": "hi"}, "hi", id="message"),
        pytest.param(
            {
                "type": "message",
                "role": "assistant",
                "content": [
                    {"type": "output_text", "text": "a"},
                    {"type": "refusal", "refusal": "no"},
                    {"type": "input_image", "image_url": "x"},
                ],
            },
            "a\nno",
            id="parts",
        ),
        pytest.param(
            {"type": "function_call", "name": "add", "arguments": "{}"}, "add {}", id="call"
        ),
        pytest.param({"type": "function_call_output", "output": "7"}, "7", id="output"),
        pytest.param(
            {"type": "reasoning", "summary": [{"type": "summary_text", "text": "so"}]},
            "so",
            id="reasoning",
        ),
        pytest.param({"type": "item_reference", "id": "x"}, "", id="no text"),
        pytest.param({"role": "user", "content": "\ud800!"}, "?!", id="half a character"),
        pytest.param([1], "", id="no object"),
    ],
)
def test_text_of_an_item_is_what_it_says(item: Any, text: str) -> None:
    assert openai_agents.text_of(item) == text


async def test_secrets_of_items_are_masked_and_items_to_forget_are_left_out(memory: Memory) -> None:
    secret = "hunter" + "22hunter"
    session = openai_agents.SlumberdSession("s1", memory)
    item: Any = {"role": "user", "content": f"the password is {secret}"}
    output: Any = {
        "type": "function_call_output", "call_id": "c",
        "output": json.dumps({"DB_PASSWORD": secret}),
    }  # fmt: skip
    long: Any = {"role": "user", "content": "w " * 49_990 + f"the password is {secret}"}
    forget: Any = {"role": "user", "content": "Don't remember this: I am ill."}

    await session.add_items([item, output, long, forget])

    items = await session.get_items()
    assert len(items) == 3
    assert items[0] == {"role": "user", "content": "the password is [masked password]"}
    found = await memory.episodes(limit=9)
    assert secret[:4] not in str([(one.content, one.metadata) for one in found])


def message(text: str) -> responses.ResponseOutputMessage:
    part = responses.ResponseOutputText(text=text, type="output_text", annotations=[])
    return responses.ResponseOutputMessage(
        id="m", content=[part], role="assistant", status="completed", type="message"
    )


def scripted_model(*answers: responses.ResponseOutputItem) -> tuple[agents.Model, list[Any]]:
    """Return a model that gives prepared answers, and the list of what it is asked."""
    left, inputs = [*answers], list[Any]()

    class ScriptedModel(agents.Model):
        async def get_response(
            self, system_instructions: Any, input: Any, *_: Any, **__: Any
        ) -> Any:
            inputs.append(input)
            return agents.ModelResponse([left.pop(0)], agents.Usage(), response_id=None)

        def stream_response(self, *_: Any, **__: Any) -> Any:
            raise NotImplementedError

    return ScriptedModel(), inputs


@pytest.mark.slow
async def test_runner_goes_on_with_a_conversation_in_another_program(tmp_path: Path) -> None:
    @agents.function_tool
    def weather(city: str) -> str:
        """Return the weather of a city."""
        return f"rain in {city}"

    call = responses.ResponseFunctionToolCall(
        arguments='{"city": "Oslo"}', call_id="c1", name="weather", type="function_call"
    )
    model, inputs = scripted_model(call, message("It rains."), message("I said: it rains."))
    agent = agents.Agent(name="clerk", model=model, tools=[weather])
    quiet = agents.RunConfig(tracing_disabled=True)

    async with Memory.open(tmp_path / "m", user="ann") as memory:
        await agents.Runner.run(
            agent,
            "Weather in Oslo?",
            session=openai_agents.SlumberdSession("talk", memory),
            run_config=quiet,
        )
    async with Memory.open(tmp_path / "m", user="ann") as memory:
        session = openai_agents.SlumberdSession("talk", memory)
        result = await agents.Runner.run(agent, "Again?", session=session, run_config=quiet)
        hits = await memory.recall("rain Oslo")
        items = await session.get_items()

    assert result.final_output == "I said: it rains."
    asked = inputs[-1]
    assert [item.get("type", item.get("role")) for item in asked] == [
        "user", "function_call", "function_call_output", "message", "user",
    ]  # fmt: skip
    assert len(items) == 6
    assert "rain in Oslo" in [hit.text for hit in hits]


def test_session_is_a_session(shared: SyncMemory) -> None:
    assert isinstance(openai_agents.SlumberdSession("s", shared._memory), agents.Session)


@pytest.mark.parametrize(
    ("item", "speaker"),
    [
        pytest.param({"role": "user", "content": "hi"}, "user", id="of the user"),
        pytest.param({"role": "assistant", "content": "hi"}, "assistant", id="of the assistant"),
        pytest.param({"role": "developer", "content": "hi"}, "developer", id="of the program"),
        pytest.param({"content": "hi"}, "user", id="message without a role"),
        pytest.param({"type": "message", "content": []}, "user", id="typed, without a role"),
        pytest.param(
            {"type": "function_call", "name": "add", "arguments": "{}"}, "assistant", id="call"
        ),
        pytest.param({"type": "function_call_output", "output": "7"}, "tool", id="output"),
        pytest.param({"type": "computer_call_output", "output": {}}, "tool", id="other output"),
        pytest.param({"type": "reasoning", "summary": []}, "assistant", id="reasoning"),
        pytest.param({"role": " ", "content": "hi"}, "user", id="role that shows nothing"),
    ],
)
async def test_only_messages_of_the_user_are_the_person_s(
    memory: Memory, item: Any, speaker: str
) -> None:
    session = openai_agents.SlumberdSession("s", memory)

    await session.add_items([item])
    [put] = await memory.episodes(session="s")
    await session.pop_item()
    [removed] = await memory.episodes(session="s")

    assert (put.speaker, removed.speaker) == (speaker, speaker)


async def test_each_call_of_a_session_may_be_sent_again(tmp_path: Path) -> None:
    async with memory_in_loop(tmp_path / "m") as own:
        sent: list[bool] = []

        class Noting:
            async def call(self, operation: str, request: dict[str, Any]) -> Answer:
                sent.append(is_repeatable(operation, request))
                return await own._transport.call(operation, request)

        memory = Memory(Noting(), user="ann", agent="desk", session="s1")
        session = openai_agents.SlumberdSession("s1", memory)
        await session.add_items([{"role": "user", "content": text} for text in ("tea", "rum")])
        await session.pop_item()
        await session.clear_session()

    assert len(sent) > 4
    assert all(sent)
