"""The model that the pages about agent frameworks ask: it answers from the memory in its prompt."""

from __future__ import annotations

import re
from typing import Any

import orjson

from tests.support.model_server import Reply

_JSON = ("Content-Type: application/json",)


def answers_from_its_prompt(request: dict[str, Any]) -> Reply:
    """Answer where the person lives if the prompt holds a fact that says so.

    Args:
        request: The body of a request for a chat completion, or for a response.
    """
    if "messages" in request:
        message = {"role": "assistant", "content": _answer(request["messages"])}
        choices = [{"index": 0, "message": message, "finish_reason": "stop"}]
        common = {"object": "chat.completion", "created": 0, "choices": choices}
        return Reply(body=orjson.dumps({**common, "id": "c1", "model": "scripted"}), headers=_JSON)
    part = {"type": "output_text", "text": _answer(request["input"]), "annotations": []}
    message = {"id": "m1", "type": "message", "role": "assistant", "status": "completed"}
    response = {
        "id": "r1", "object": "response", "created_at": 0, "status": "completed",
        "model": "scripted", "output": [{**message, "content": [part]}], "tools": [],
        "tool_choice": "auto", "parallel_tool_calls": False,
    }  # fmt: skip
    return Reply(body=orjson.dumps(response), headers=_JSON)


def _answer(messages: list[dict[str, Any]]) -> str:
    prompt = "\n".join(str(one["content"]) for one in messages)
    home = re.search(r'^fact .*"\w+ lives in (\w+)"$', prompt, re.MULTILINE)
    if home and "Where do I live?" in str(messages[-1]["content"]):
        return f"You live in {home[1]}."
    return "Noted. I live in the cloud."
