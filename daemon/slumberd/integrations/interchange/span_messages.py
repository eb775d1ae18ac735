"""Read the messages that a span holds, in the forms of the conventions that programs follow.

These are OpenTelemetry's for generative AI, version 1.42.0 with its messages in attributes
(https://opentelemetry.io/schemas/gen-ai/1.42.0), and up to 1.36.0 with messages in events;
OpenLLMetry's; OpenInference's; and those of the AI SDK of Vercel. Their messages have a role and
parts, a role and a content, or one attribute for each value of a message.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import orjson

from slumberd.integrations.interchange.records import optional_text
from slumberd.integrations.interchange.spans import (
    ANSWER_TEXTS,
    INPUTS,
    KIND,
    OTHER_CALLS,
    OUTPUTS,
    PROMPTS,
    VALUES,
    Span,
)
from slumberd.model.episode import PERSON
from slumberd.model.texts import strip_recalled

MOST_CHARACTERS = 100_000
"""The longest text of a message."""

USER, ASSISTANT = "user", "assistant"

_ROLES = {
    "human": USER, "humanmessage": USER, "ai": ASSISTANT, "aimessage": ASSISTANT,
    "model": ASSISTANT, "bot": ASSISTANT, "chatbot": ASSISTANT, "systemmessage": "system",
    "toolmessage": "tool",
}  # fmt: skip
"""The roles of some programs, with the names that the conventions have for them."""

_KNOWN_ROLES = frozenset({USER, ASSISTANT, "system", "developer", "tool", "function"})
_TYPES = frozenset({"human", "ai", "system", "tool", "function"})
"""The types of messages in LangChain, which has no roles."""

_EVENT = re.compile(r"gen_ai\.(?:(user|assistant|system|tool)\.message|(choice))")
"""The events of conventions up to 1.36.0, which hold one message each."""

_OF_EVENT = ("role", "name", "content", "tool_calls")
"""The attributes of such an event that make its message."""

_WRAPPERS = ("message", "kwargs", "data", "prompt", "completion", "message_content")
"""The keys under which a message, or a part of one, holds itself."""

_PATHS = ("message.", "message_content.")
"""How the keys of a message begin that are paths."""

_CONTENTS = ("parts", "content", "contents", "text")
_LISTS = (
    "messages", "input_messages", "output_messages", "choices", "generations", "candidates",
    "output",
)  # fmt: skip
"""The keys under which requests and answers of models hold messages."""

_TEXTS = ("prompt", "input", "inputs", "question", "query", "completion", "output", "answer")
"""The keys under which other inputs and outputs hold a text, or messages."""

_TEXT_TYPES = frozenset({"text", "input_text", "output_text", "message"})
_OTHER_TYPES = re.compile(
    r"((input|output|server)_?)?(reasoning|thinking|redacted|tool|function|image|file|blob|uri"
    r"|audio|video|document|refusal|media|web_search|computer|mcp|custom_tool|resource).*",
    re.IGNORECASE,
)
"""Parts that hold no words of the speaker: calls of tools, results, pictures, reasoning."""

_PART_KEYS = frozenset({
    "text", "toolUse", "toolResult", "image", "json", "document", "reasoningContent", "video",
    "functionCall", "functionResponse", "inlineData", "cachePoint", "guardContent",
})  # fmt: skip
"""The keys of parts without a type, as of Bedrock and Gemini."""

_BESIDE = frozenset({
    "role", "type", "name", "id", "index", "status", "finish_reason", "stop_reason", "usage",
    "cache_control", "annotations", "logprobs", "metadata", "response_metadata",
    "additional_kwargs", "lc", "example",
})  # fmt: skip
"""The keys of a message or part that hold no words."""

_JSON = re.compile(r"\s*(?:\[\s*[\[{\"\]]|\{\s*[\"}])")
"""The begin of a JSON array or object."""

_PARTS = re.compile(r'\s*\[\s*\{\s*"(?:type|text)"')
"""The begin of parts that are written as JSON."""

_DEEPEST = 8


class Message(NamedTuple):
    """One message of a span.

    Attributes:
        role: Who spoke, as ``user`` or ``assistant``.
        text: What was said.
        speaker: The name of the speaker; None when the message has none.
    """

    role: str
    text: str
    speaker: str | None = None


class Messages(NamedTuple):
    """The messages of a span.

    Attributes:
        history: Those before the answer; empty when the span holds none in a known form.
        answers: The answer and other choices; empty when the span holds none in a known form.
        unread: The parts of them that have an unknown form, with their attributes.
    """

    history: list[Message]
    answers: list[Message]
    unread: tuple[str, ...] = ()


def messages_of(span: Span) -> Messages:
    """Return the messages of a span, from the first attribute or event that holds some.

    Raises:
        ValueError: Some have another form, or are too long; the message names their attribute.
    """
    reader = _Reader()
    places = [span.attributes, *(event.attributes for event in span.events)]
    history, answers = (
        _first(places, names, role, reader)
        or _of_events(span, role, reader)
        or _of_value(span, value, role, reader)
        for names, role, value in ((INPUTS, USER, VALUES[0]), (OUTPUTS, ASSISTANT, VALUES[1]))
    )
    return Messages(history, answers, tuple(reader.unread))


def _first(
    places: Sequence[Mapping[str, Any]], names: Sequence[str], role: str, reader: _Reader
) -> list[Message]:
    for attributes in places:
        for name in names:
            value = attributes.get(name)
            value = _unflatten(attributes, name) if value is None else value
            if value is not None and (found := reader.read(value, name, role)):
                return found
    return []


def _of_events(span: Span, side: str, reader: _Reader) -> list[Message]:
    """Return the messages of the events that hold one message each: before the answer, or of it."""
    held = list[Message]()
    for event in span.events:
        found = _EVENT.fullmatch(event.name)
        if found and (found[2] is not None) is (side == ASSISTANT):
            body = _body(event.attributes, event.name)
            held += reader.read(body, event.name, found[1] or ASSISTANT) if body else []
    return held


def _body(attributes: Mapping[str, Any], event: str) -> dict[str, Any]:
    """Return the message of an event; empty when the program did not record it."""
    whole = attributes.get("gen_ai.event.content", attributes.get("message"))
    if isinstance(whole, str) and _JSON.match(whole):
        whole = _loads(whole, event)
    if whole is not None:
        return whole if isinstance(whole, dict) else {"content": whole}
    plain = _nested(attributes)
    body = {key: plain[key] for key in _OF_EVENT if plain.get(key) is not None}
    return body if {*body} - {"role", "name"} else {}


def _of_value(span: Span, name: str, role: str, reader: _Reader) -> list[Message]:
    """Return the messages in the input or output of a span of OpenInference.

    A step of a chain may hold any text there; only the input of the whole chain is the user's.
    """
    value, kind = span.attributes.get(name), span.attributes.get(KIND)
    if value in (None, "") or (isinstance(kind, str) and kind in OTHER_CALLS):
        return []
    if kind in ("LLM", "AGENT", None) or (kind == "CHAIN" and not span.parent_id):
        return reader.read(value, name, role)
    reader.unread.append(name)
    return []


class _Reader:
    """Reads messages, and keeps the names of what has an unknown form."""

    def __init__(self) -> None:
        self.unread: list[str] = []

    def read(self, value: object, name: str, role: str, depth: int = 0) -> list[Message]:
        """Return the messages in a value.

        Args:
            value: The value of an attribute.
            name: The name of the attribute, or of the event.
            role: The role of a message that states none, where the attribute allows that.
            depth: How many values it is in.

        Raises:
            ValueError: The value holds something else.
        """
        if depth > _DEEPEST:
            raise ValueError(f"attribute {name!r} is nested deeper than {_DEEPEST} levels")
        match value:
            case str() if name in ANSWER_TEXTS:  # a text, whatever it looks like
                return [_checked(Message(role, strip_recalled(value)), name)]
            case str() if _JSON.match(value) or not _takes_texts(name):
                return self.read(_loads(value, name), name, role, depth + 1)
            case str():
                return [self._message({"content": value}, name, role)] if value.strip() else []
            case list():
                return [each for one in value for each in self.read(one, name, role, depth + 1)]
            case dict():
                return self._of_object(value, name, role, depth)
            case None:
                return []
            case _:
                raise ValueError(f"attribute {name!r} holds no array of messages")

    def _of_object(self, value: dict[str, Any], name: str, role: str, depth: int) -> list[Message]:
        for key in _LISTS:
            if isinstance(value.get(key), list):
                return self.read(value[key], name, role, depth + 1)
        if _is_message(value, name):
            return [self._message(value, name, role)]
        if not _takes_texts(name):
            raise ValueError(f"attribute {name!r} holds no array of messages")
        for key in _TEXTS:
            if value.get(key):
                return self.read(value[key], name, role, depth + 1)
        self.unread.append(name)
        return []

    def _message(self, message: Mapping[str, Any], name: str, role: str) -> Message:
        whole = _unwrap(message)
        prompt = whole.get("user") if name in PROMPTS else None
        # What comes before an answer is only taken with the role that the program states.
        stated = _role_of(whole) or (role if name not in INPUTS[:2] else None)
        contents = (*(whole.get(key) for key in _CONTENTS), prompt)
        content = next((each for each in contents if each is not None), None)
        if stated is None or (stated == USER and content is None):
            raise ValueError(f"a message in {name!r} has no role or no parts")
        unread: list[str] = []
        try:
            text = strip_recalled("\n".join(_texts(content, unread)))
        except ValueError as error:
            raise ValueError(f"a message in {name!r} {error}") from error
        if text and stated not in _KNOWN_ROLES and not _OTHER_TYPES.fullmatch(stated):
            self.unread.append(f"{name} (a message of the role {stated[:40]})")
        if content is None and stated == ASSISTANT and (keys := _unknown_keys(whole)):
            unread.append(f"with {keys}")
        if stated in (USER, ASSISTANT):
            self.unread += [f"{name} (a part {each})" for each in unread]
        speaker = _speaker_of(stated, optional_text(whole, "name"))
        return _checked(Message(stated, text, speaker), name)


def _checked(message: Message, name: str) -> Message:
    """Return a message.

    Raises:
        ValueError: It is too long, and of the user or the assistant.
    """
    if message.role in (USER, ASSISTANT) and len(message.text) > MOST_CHARACTERS:
        raise ValueError(f"a message in {name!r} is longer than {MOST_CHARACTERS:,} characters")
    return message


def _takes_texts(name: str) -> bool:
    """Return whether an attribute may hold a plain text."""
    return name not in (*INPUTS[:2], *OUTPUTS[:2])


def _loads(text: str, name: str) -> Any:  # noqa: ANN401 # any JSON
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError as error:
        raise ValueError(
            f"attribute {name!r} holds no JSON: {error.msg}; a limit on the length of"
            " attributes may have cut it"
        ) from error


def _is_message(value: Mapping[str, Any], name: str) -> bool:
    keys = {"role", "type", *_CONTENTS, *_WRAPPERS[:3], *(("user",) if name in PROMPTS else ())}
    return not keys.isdisjoint(value) or any(key.startswith(_PATHS) for key in value)


def _unwrap(message: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a message without what some programs put around it."""
    found = _nested(message)
    for _ in range(_DEEPEST):
        key = next((key for key in _WRAPPERS if isinstance(found.get(key), dict)), None)
        if key is None:
            break
        inner = found.pop(key)
        found = {**found, **_nested(inner)}
    return found


def _nested(message: Mapping[str, Any]) -> dict[str, Any]:
    """Return a message whose keys may be paths, such as ``message.role``, by their last names."""
    return {
        key.rpartition(".")[2] if key.startswith(_PATHS) else key: value
        for key, value in message.items()
    }


def _role_of(message: Mapping[str, Any]) -> str | None:
    """Return the role that a message states; None when it states none."""
    role, kind = optional_text(message, "role"), message.get("type")
    if role is None and isinstance(kind, str):
        # The second is a call of a tool, its result, or reasoning, beside the messages.
        role = kind if kind in _TYPES or _OTHER_TYPES.fullmatch(kind) else None
    plain = (role or "").rpartition(".")[2].lower()  # also ``MessageRole.USER``
    return role if role is None else _ROLES.get(plain, plain)


def _speaker_of(role: str, name: str | None) -> str | None:
    """Return the name of a message's speaker; no program has the name of the person."""
    return None if role != USER and name in PERSON else name


def _texts(content: object, unread: list[str], depth: int = 0) -> Iterator[str]:
    """Yield what a message says: its texts, and the words of its sound.

    Args:
        content: The content of the message, or a part of it.
        unread: Takes what tells of the parts that are not known.
        depth: How many parts it is in.
    """
    match content:
        case str():
            parts = _parts_in(content) if depth <= _DEEPEST else None
            yield from [content] if parts is None else _texts(parts, unread, depth + 1)
        case list() if depth <= _DEEPEST:
            for part in content:
                yield from _texts(part, unread, depth + 1)
        case dict() if depth <= _DEEPEST:
            yield from _texts_of_part(content, unread, depth)
        case None:
            pass
        case list() | dict():
            unread.append("that is nested too deep")
        case _:
            unread.append("that is a number")


def _texts_of_part(part: dict[str, Any], unread: list[str], depth: int) -> Iterator[str]:
    whole = _unwrap(part)
    kind = whole.get("type")
    if isinstance(transcript := whole.get("transcript"), str):
        yield transcript
    elif kind is None or (isinstance(kind, str) and kind in _TEXT_TYPES):
        found = next((whole[key] for key in ("text", *_CONTENTS) if whole.get(key)), None)
        yield from _texts(found, unread, depth + 1)
        if found is None and "text" not in whole and (keys := _unknown_keys(whole)):
            unread.append(f"with {keys}")
    elif not isinstance(kind, str):
        unread.append("whose type is no text")
    elif not _OTHER_TYPES.fullmatch(kind):
        unread.append(f"of the type {kind[:40]}")


def _unknown_keys(whole: Mapping[str, Any]) -> str:
    """Return the keys of a message or part that may hold its text; empty when nothing else does."""
    known = (*_BESIDE, *_PART_KEYS, *_CONTENTS)
    if any(_OTHER_TYPES.fullmatch(key) or key in _PART_KEYS for key in whole):
        return ""
    return ", ".join(key for key, value in whole.items() if value and key not in known)[:40]


def _parts_in(text: str) -> list[Any] | None:
    """Return the parts of a content that is written as JSON; None for any other text.

    Raises:
        ValueError: They are cut.
    """
    if not _JSON.match(text):
        return None
    try:
        found = orjson.loads(text)
    except orjson.JSONDecodeError as error:
        if _PARTS.match(text):
            problem = f"has parts that are no JSON: {error.msg}; a limit may have cut them"
            raise ValueError(problem) from error
        return None
    parts = found if isinstance(found, list) else [found]
    are_parts = all(
        isinstance(part, dict) and part and ("type" in part or part.keys() <= _PART_KEYS)
        for part in parts
    )
    # A person may write JSON, too; then it is a text.
    return parts if are_parts and any(map(_is_known_part, parts)) else None


def _is_known_part(part: Mapping[str, Any]) -> bool:
    kind = part.get("type")
    if not isinstance(kind, str):
        return part.keys() <= _PART_KEYS
    return kind in _TEXT_TYPES or _OTHER_TYPES.fullmatch(kind) is not None


def _unflatten(attributes: Mapping[str, Any], name: str) -> Any:  # noqa: ANN401 # any JSON
    """Return the array whose values have attributes of their own, such as ``NAME.0.role``.

    None when there is no such attribute.
    """
    prefix = f"{name}."
    tree: dict[str, Any] = {}
    for key in attributes:
        if key.startswith(prefix):
            steps = key[len(prefix) :].split(".")
            if len(steps) <= _DEEPEST and steps[0].isdecimal():
                _set(tree, steps, attributes[key])
    return _as_list(tree) if tree else None


def _set(tree: dict[str, Any], steps: Sequence[str], value: object) -> None:
    for step in steps[:-1]:
        inner = tree.get(step)
        tree[step] = inner if isinstance(inner, dict) else {}
        tree = tree[step]
    tree[steps[-1]] = value


def _as_list(tree: Any) -> Any:  # noqa: ANN401 # any JSON
    """Return a tree whose objects with numbers for keys are arrays, in their order."""
    if not isinstance(tree, dict):
        return tree
    values = {key: _as_list(value) for key, value in tree.items()}
    if values and all(key.isdecimal() and key.isascii() and len(key) < 10 for key in values):
        return [values[key] for key in sorted(values, key=int)]
    return values
