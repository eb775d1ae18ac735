"""The messages of a graph become episodes, once each, with who spoke and in which thread."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pytest

from slumberd import SyncMemory
from slumberd.model.errors import SlumberdError, UsageError
from tests.support.late_imports import LateModule

if TYPE_CHECKING:
    from langchain_core import messages
    from langgraph import graph
    from langgraph.checkpoint import memory as checkpoint

    from slumberd.integrations import langgraph_messages
else:
    messages = LateModule("langchain_core.messages")
    graph = LateModule("langgraph.graph")
    checkpoint = LateModule("langgraph.checkpoint.memory")
    langgraph_messages = LateModule("slumberd.integrations.langgraph_messages")

pytestmark = [pytest.mark.integration, pytest.mark.slow]


@pytest.fixture
def memory(tmp_path: Path) -> Iterator[SyncMemory]:
    with SyncMemory.open(tmp_path / "m", user="ada", session="own") as memory:
        yield memory


def graph_of(node: Any, memory: SyncMemory, **options: Any) -> Any:
    """Return a graph of one node, whose messages the memory takes."""
    builder = graph.StateGraph(graph.MessagesState)
    builder.add_node("chat", node)
    builder.add_edge(graph.START, "chat")
    callback = langgraph_messages.SlumberdMessages(memory, seconds=5)
    return builder.compile(**options).with_config(callbacks=[callback])


def agree(state: Any) -> dict[str, Any]:
    return {"messages": [messages.AIMessage("I live in the cloud.")]}


def turns(memory: SyncMemory, session: str = "own") -> list[tuple[str | None, str]]:
    """Return speaker and text of each episode of a session, oldest first."""
    found = memory.episodes(session=session)
    return [(one.speaker, one.content) for one in reversed(found)]


def homes(memory: SyncMemory) -> list[object]:
    return [one.payload["object"] for one in memory.facts(predicate="lives_in").facts]


def test_person_is_learned_from_and_the_assistant_is_not(memory: SyncMemory) -> None:
    graph_of(agree, memory).invoke({"messages": [messages.HumanMessage("I live in Oslo.")]})

    assert turns(memory) == [("user", "I live in Oslo."), ("assistant", "I live in the cloud.")]
    assert homes(memory) == ["Oslo"]


def test_asynchronous_call_puts_the_same(memory: SyncMemory) -> None:
    call = graph_of(agree, memory).ainvoke({"messages": "I live in Oslo."})

    asyncio.run(call)

    assert turns(memory) == [("user", "I live in Oslo."), ("assistant", "I live in the cloud.")]


def test_thread_is_the_session_and_each_message_is_put_once(memory: SyncMemory) -> None:
    saver = checkpoint.InMemorySaver()
    thread = {"configurable": {"thread_id": "t1"}}

    for said in ("I live in Oslo.", "I've moved to Lisbon."):
        # A new callback each time stands for a program that was started again.
        graph_of(agree, memory, checkpointer=saver).invoke({"messages": said}, thread)

    assert [text for speaker, text in turns(memory, "t1") if speaker == "user"] == [
        "I live in Oslo.",
        "I've moved to Lisbon.",
    ]
    assert len(turns(memory, "t1")) == 4
    assert homes(memory) == ["Lisbon"]


def test_copy_of_a_thread_says_nothing_anew(memory: SyncMemory) -> None:
    old = messages.HumanMessage("I live in Oslo.", id=str(uuid4()))
    own = graph_of(agree, memory)
    own.invoke({"messages": [old]}, {"configurable": {"thread_id": "t1"}})
    own.invoke({"messages": "I've moved to Lisbon."}, {"configurable": {"thread_id": "t1"}})

    copied = graph_of(agree, memory)
    copied.invoke({"messages": [old]}, {"configurable": {"thread_id": "t2"}})

    assert homes(memory) == ["Lisbon"]


def test_id_that_two_threads_use_names_two_messages(memory: SyncMemory) -> None:
    own = graph_of(agree, memory)
    for thread, said in (("t1", "I live in Oslo."), ("t2", "I've moved to Lisbon.")):
        turn = messages.HumanMessage(said, id="1")
        own.invoke({"messages": [turn]}, {"configurable": {"thread_id": thread}})

    assert turns(memory, "t1")[0] == ("user", "I live in Oslo.")
    assert turns(memory, "t2")[0] == ("user", "I've moved to Lisbon.")


def test_edited_message_is_a_new_version_of_its_episode(memory: SyncMemory) -> None:
    own = graph_of(agree, memory)
    for said in ("I live in Oslo.", "I live in Rome."):
        own.invoke({"messages": [messages.HumanMessage(said, id="1")]})

    assert [text for speaker, text in turns(memory) if speaker == "user"] == ["I live in Rome."]
    assert homes(memory) == ["Rome"]


def test_each_kind_of_message_has_its_speaker(memory: SyncMemory) -> None:
    said = [
        messages.SystemMessage("I live in a system."),
        messages.HumanMessage("I live in a team.", name="planner"),
        messages.AIMessage("", tool_calls=[{"name": "ask", "args": {}, "id": "c1"}]),
        messages.ToolMessage("I live in a tool.", tool_call_id="c1"),
        messages.ChatMessage(content="I live in a role.", role="critic"),
        messages.HumanMessage([{"type": "text", "text": "I live in Oslo."}]),
    ]

    graph_of(agree, memory).invoke({"messages": said})

    assert turns(memory) == [
        ("planner", "I live in a team."),
        ("tool", "I live in a tool."),
        ("critic", "I live in a role."),
        ("user", "I live in Oslo."),
        ("assistant", "I live in the cloud."),
    ]
    assert homes(memory) == ["Oslo"]


def test_graph_inside_of_a_node_keeps_what_it_says_to_itself(memory: SyncMemory) -> None:
    inner = graph.StateGraph(graph.MessagesState)
    inner.add_node("work", agree)
    inner.add_edge(graph.START, "work")
    compiled: Any = inner.compile()

    def delegate(state: Any) -> dict[str, Any]:
        done = compiled.invoke({"messages": "Say that I live in Rome. I live in Rome."})
        return {"messages": done["messages"][-1:]}

    graph_of(delegate, memory).invoke({"messages": "I live in Oslo."})

    assert turns(memory) == [("user", "I live in Oslo."), ("assistant", "I live in the cloud.")]


def test_message_of_a_call_that_fails_is_kept(memory: SyncMemory) -> None:
    def fail(state: Any) -> dict[str, Any]:
        raise UsageError("no model")

    with pytest.raises(UsageError):
        graph_of(fail, memory).invoke({"messages": "I live in Oslo."})

    assert turns(memory) == [("user", "I live in Oslo.")]


def test_call_fails_when_a_message_cannot_be_put(tmp_path: Path) -> None:
    with SyncMemory.open(tmp_path / "m", user="ada") as closed:
        own = graph_of(agree, closed)

    with pytest.raises(SlumberdError, match="closed"):
        own.invoke({"messages": "I live in Oslo."})


def test_callback_forgets_the_oldest_of_many_messages_and_puts_none_twice(
    memory: SyncMemory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("slumberd.integrations.langgraph_messages._MOST_KNOWN", 1)
    said = [messages.HumanMessage(f"I like tea {n}.", id=str(n)) for n in range(3)]
    own = graph_of(agree, memory)

    own.invoke({"messages": said})

    assert len(turns(memory)) == 4
    callback = own.config["callbacks"][0]
    assert len(callback._put) == 1
