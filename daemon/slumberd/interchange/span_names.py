"""The names of attributes of spans: those that are read, and those that may hold messages."""

from __future__ import annotations

import re

KIND = "openinference.span.kind"

USERS = (
    "user.id", "enduser.id", "langfuse.user.id", "traceloop.association.properties.user_id",
    "ai.telemetry.metadata.userId", "ai.telemetry.metadata.user_id",
)  # fmt: skip
"""The names of the user; the first one that a span has counts."""

SESSIONS = (
    "gen_ai.conversation.id", "session.id", "langfuse.session.id",
    "traceloop.association.properties.session_id",
    "traceloop.association.properties.conversation_id",
    "ai.telemetry.metadata.sessionId", "ai.telemetry.metadata.session_id",
)  # fmt: skip
AGENTS = ("gen_ai.agent.id", "gen_ai.agent.name", "agent.name")
MODELS = ("gen_ai.request.model", "llm.model_name", "ai.model.id")
OPERATIONS = (
    "gen_ai.operation.name", "ai.operationId", "llm.request.type", KIND, "traceloop.span.kind",
)  # fmt: skip

INPUTS = (
    "gen_ai.input.messages", "llm.input_messages", "gen_ai.prompt", "llm.prompts",
    "ai.prompt.messages", "ai.prompt",
)  # fmt: skip
"""The attributes of the messages before an answer: of OpenTelemetry, OpenInference, OpenLLMetry,
and the AI SDK. Each may also be the begin of the names of one attribute for each value."""

PROMPTS = ("gen_ai.prompt", "llm.prompts")
"""Those of OpenLLMetry, whose entries may hold the user's text under ``user``."""

ANSWER_TEXTS = ("ai.response.text", "ai.result.text")
"""The attributes that hold the text of an answer, whatever it looks like."""

OUTPUTS = (
    "gen_ai.output.messages", "llm.output_messages", "gen_ai.completion", "llm.completions",
    "llm.choices", *ANSWER_TEXTS,
)  # fmt: skip
VALUES = ("input.value", "output.value")
"""The attributes of OpenInference that any span may have, whatever it does."""

OF_EVENTS = ("role", "name", "content", "tool_calls", "message", "gen_ai.event.content", "index")
"""The attributes that are read of an event that holds one message."""

WANTED = frozenset({
    *USERS, *SESSIONS, *AGENTS, *MODELS, *OPERATIONS, *INPUTS, *OUTPUTS, *VALUES,
})  # fmt: skip
"""The attributes that are read; all others are left out at once."""

_FLAT = tuple(f"{name}." for name in (*INPUTS, *OUTPUTS) if name not in ANSWER_TEXTS)

CALLS = frozenset({
    "chat", "generate_content", "invoke_agent", "invoke_workflow", "text_completion", "completion",
    "LLM", "AGENT",
})  # fmt: skip
"""The operations whose spans hold messages, if their program records them."""

OTHER_CALLS = frozenset({
    "execute_tool", "embeddings", "retrieval", "tool", "ai.toolCall", "TOOL", "RETRIEVER",
    "EMBEDDING", "RERANKER",
})  # fmt: skip
"""The operations whose spans hold no words of a user or an assistant."""

CALL_OF_SDK = re.compile(r"ai\.(generate|stream)(Text|Object)(\.do(Generate|Stream))?")

_FAMILIES = frozenset({
    "gen_ai", "genai", "llm", "ai", "openinference", "traceloop", "langfuse", "langsmith",
    "langchain", "langgraph", "mlflow", "lk", "pydantic_ai", "logfire", "crewai", "dspy",
    "haystack", "openai", "anthropic", "smolagents", "autogen", "lmnr", "braintrust", "agent",
    "chat", "conversation", "input", "output", "prompt", "completion", "messages",
    "all_messages_events",
})  # fmt: skip
"""Names that begin attributes of programs that call models."""

_FOREIGN = frozenset({
    "http", "db", "messaging", "rpc", "url", "server", "client", "net", "network", "code",
    "thread", "process", "exception", "error", "faas", "tool", "mcp", "retrieval", "embedding",
    "reranker", "document", "metadata", "telemetry", "headers", "tools",
})  # fmt: skip
_HOLDS = frozenset({
    "prompt", "prompts", "completion", "completions", "message", "messages", "input", "inputs",
    "output", "outputs", "content", "response", "transcript", "transcription", "question",
    "answer", "query", "reply", "utterance", "conversation", "history", "choices", "object",
    "events",
})  # fmt: skip
_PLAIN = frozenset({"value", "text", "data", "body", "json", "raw", "content", "messages"})
_WORD = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])")
_TELLS = frozenset({
    "type", "mime", "tokens", "token", "model", "id", "ids", "name", "reason", "reasons", "format",
    "kind", "schema", "template", "variables", "count", "length", "timestamp", "role", "hash",
    "tool", "tools", "system", "instructions", "version", "language", "metadata", "provider",
})  # fmt: skip


def is_wanted(name: str) -> bool:
    """Return whether an attribute is read."""
    return name in WANTED or name.startswith(_FLAT)


def may_hold_messages(name: str) -> bool:
    """Return whether an attribute that is not read may hold messages, by its name."""
    *places, last = name.split(".")
    words = {word.lower() for word in _WORD.findall(last)}
    if last in _PLAIN and places:
        words |= {word.lower() for word in _WORD.findall(places[-1])}
    return bool(words & _HOLDS) and not words & _TELLS and not _FOREIGN & {*places}


def is_of_models(name: str) -> bool:
    """Return whether the name of an attribute is one of programs that call models."""
    return not _FAMILIES.isdisjoint(name.split("."))
