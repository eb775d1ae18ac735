"""Put the messages of a LangGraph graph as episodes. Needs the extra ``langgraph``."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Any
from uuid import UUID

from slumberd.client.sync_memory import SyncMemory
from slumberd.model.episode import is_visible
from slumberd.model.errors import ExtraMissingError, KeyReusedError

try:
    from langchain_core.callbacks import BaseCallbackHandler
    from langchain_core.messages import (
        AIMessage,
        BaseMessage,
        ChatMessage,
        FunctionMessage,
        HumanMessage,
        ToolMessage,
    )
except ImportError as error:
    raise ExtraMissingError("langgraph", "LangGraph cannot use this callback") from error

if TYPE_CHECKING:
    from collections.abc import Mapping

_MOST_KNOWN = 10_000
"""So many messages are known to be put; older ones are put again, which changes nothing."""


class SlumberdMessages(BaseCallbackHandler):
    """A callback that puts each message of a graph's state as an episode, with who spoke it.

    It reads the state of the graph that it is given to. What a graph inside of a node says to
    itself is left out. Graphs may be called synchronously and asynchronously, from any thread.

    Args:
        memory: The memory of the person.
        seconds: The longest wait for the rules after a message of the person, 0 to 60.
    """

    raise_error = True  # the call of the graph fails rather than that a message is lost

    def __init__(self, memory: SyncMemory, *, seconds: float = 0.0) -> None:
        super().__init__()
        self._memory = memory
        self._seconds = seconds
        self._calls: dict[UUID, str | None] = {}
        self._runs: set[UUID] = set()
        self._put: dict[tuple[str, str], None] = {}

    def on_chain_start(  # as LangChain calls it
        self,
        serialized: Any,  # noqa: ANN401 # not read
        inputs: Any,  # noqa: ANN401 # any state
        *,
        run_id: UUID,
        parent_run_id: UUID | None = None,
        tags: list[str] | None = None,
        metadata: Mapping[str, Any] | None = None,
        **rest: Any,  # as LangChain calls it
    ) -> None:
        """Put the messages that a node of the graph begins with."""
        found = metadata or {}
        if parent_run_id is None or parent_run_id not in self._runs:
            thread = found.get("thread_id")
            self._calls[run_id] = None if thread is None else str(thread)
        elif parent_run_id in self._calls and rest.get("name") == found.get("langgraph_node", ""):
            self._remember(inputs, self._calls[parent_run_id])
        self._runs.add(run_id)

    def on_chain_end(
        self,
        outputs: Any,  # noqa: ANN401 # any state
        *,
        run_id: UUID,
        parent_run_id: UUID | None = None,
        **rest: Any,  # as LangChain calls it
    ) -> None:
        """Put the messages that the graph ends with."""
        self._runs.discard(run_id)
        if run_id in self._calls:
            self._remember(outputs, self._calls.pop(run_id))

    def on_chain_error(
        self,
        error: BaseException,
        *,
        run_id: UUID,
        parent_run_id: UUID | None = None,
        **rest: Any,  # as LangChain calls it
    ) -> None:
        """End a call that failed; what it had read is put."""
        self._runs.discard(run_id)
        self._calls.pop(run_id, None)

    def _remember(self, state: Any, session: str | None) -> None:  # noqa: ANN401 # any state
        for message in _messages_of(state):
            speaker, text, id = _speaker_of(message), str(message.text), message.id
            if speaker and id and text.strip() and (id, text) not in self._put:
                self._put_one(id, text, speaker, session)
                self._put[id, text] = None
        for known in [*self._put][:-_MOST_KNOWN]:
            self._put.pop(known, None)

    def _put_one(self, id: str, text: str, speaker: str, session: str | None) -> None:
        key = id if _is_unique(id) else f"{session}/{id}"
        seconds = self._seconds if speaker == "user" else 0.0
        with suppress(KeyReusedError):  # a thread that was copied holds the message of the first
            self._memory.remember(text, key=key, session=session, speaker=speaker, seconds=seconds)


def _messages_of(state: Any) -> Iterator[BaseMessage]:  # noqa: ANN401 # any state
    """Yield the messages of a state; one that LangGraph has not taken yet has no id."""
    found = state.get("messages") if isinstance(state, dict) else getattr(state, "messages", None)
    for one in found if isinstance(found, list) else ():
        if isinstance(one, BaseMessage):
            yield one


def _speaker_of(message: BaseMessage) -> str:
    """Return the speaker of a message; empty for a message of the system.

    Graphs of several agents pass their messages as human ones, with a name.
    """
    match message:
        case HumanMessage(name=str(name)) if is_visible(name):
            return name
        case HumanMessage():
            return "user"
        case AIMessage():
            return "assistant"
        case ToolMessage() | FunctionMessage():
            return "tool"
        case ChatMessage(role=role) if is_visible(role):
            return role
        case _:
            return ""


def _is_unique(id: str) -> bool:
    """Return whether an id ends with a UUID, so that no other thread has it by chance."""
    try:
        UUID(id[-36:])
    except ValueError:
        return False
    return True
