"""Each limit of each form names what is too large, how large it is, and how large it may be."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest

from slumberd.model.errors import UsageError
from slumberd.operations.handlers import read_form
from slumberd.operations.registry import OPERATIONS
from slumberd.rules.validation import problems
from slumberd.storage.strict_json import MOST_DEPTH, MOST_REQUEST_BYTES
from tests.support.lists import of_each
from tests.support.repository import ROOT

pytestmark = pytest.mark.unit


PAGE = ROOT / "docs/reference/operations.md"

Schema = dict[str, Any]
Wrong = tuple[tuple[str | int, ...], Any, tuple[str, ...]]
"""Where a value is, the value, and the words of its problem."""


class Mistake(NamedTuple):
    """A value that one field refuses, inside its request, and what the problem says.

    Attributes:
        trail: Where the value is.
        request: The whole request.
        says: The texts that the problem holds.
    """

    trail: tuple[str | int, ...]
    request: dict[str, Any]
    says: tuple[str, ...]


def mistakes_of(name: str) -> Iterator[Mistake]:
    """Yield one request for each limit of each field of an operation."""
    operation = OPERATIONS[name]
    schema = operation.form.model_json_schema()
    for field, described in schema["properties"].items():
        for trail, value, says in wrong_values(described, schema.get("$defs", {})):
            request = {**operation.example.request, field: value}
            yield Mistake((field, *trail), request, says)


def wrong_values(described: Schema, definitions: Schema) -> Iterator[Wrong]:
    """Yield where, what and which words, for each limit that a JSON Schema states."""
    described = _resolved(described, definitions)
    for one in described.get("anyOf", []):
        yield from wrong_values(one, definitions)
    for limit, bound in described.items():
        for value, says in exceeding(limit, bound, described, definitions):
            yield (), value, says
    if "items" in described:
        for trail, value, says in wrong_values(described["items"], definitions):
            yield (0, *trail), [value], says
    for name, below in described.get("properties", {}).items():
        for trail, value, says in wrong_values(below, definitions):
            yield (name, *trail), {**sample_of(described, definitions), name: value}, says


def exceeding(
    limit: str, bound: Any, described: Schema, definitions: Schema
) -> Iterator[tuple[Any, tuple[str, ...]]]:
    """Yield values that one limit refuses, and what the problem says."""
    match limit:
        case "maxLength":
            for length in (bound + 1, bound * 3):
                yield "é" * length, (f"too long: {length:,} characters, at most {bound:,}",)
        case "maxItems":
            items = [sample_of(described["items"], definitions)] * (bound + 1)
            yield items, (f"too many: {bound + 1:,} entries, at most {bound:,}",)
        case "minLength":
            yield "", (" needed, not ",)
        case "minItems":
            yield [], ("at least one entry is needed, not []",)
        case "maximum":
            yield bound + 1, (f"at most {bound} is needed, not {bound + 1}",)
        case "minimum":
            yield bound - 1, (f"at least {bound} is needed, not {bound - 1}",)
        case _:
            yield from of_another_kind(limit, bound, described)


def of_another_kind(
    limit: str, bound: Any, described: Schema
) -> Iterator[tuple[Any, tuple[str, ...]]]:
    """Yield values that one limit on the kind of values refuses, and what the problem says."""
    match limit, bound:
        case "enum", [first, *_]:
            close = f"{first}z"
            yield close, (repr(first), f"not {close!r}", f"did you mean {first!r}?")
            yield "zzzz", (repr(first), "not 'zzzz'")
        case "pattern", _:
            yield "zz zz", ("text of the form", "not 'zz zz'")
        case "format", "date-time":
            for text in (
                "yesterday",
                "2026-01-01",
                "2026-01-01T12:00",
                "0001-01-01T00:00:00+14:00",
            ):
                yield text, ("with an offset", "such as '2026-01-01T12:00:00+01:00'", repr(text))
        case "type", str() if bound != "null" and not {"enum", "format"} & described.keys():
            value, needed = OF_ANOTHER_TYPE[bound]
            yield value, (f"{needed} needed, not".strip(),)
        case _:
            pass


OF_ANOTHER_TYPE: dict[str, tuple[Any, str]] = {
    "string": (5, "text is"),
    "integer": ("5", "a whole number is"),
    "number": ("5", "a number is"),
    "boolean": ("yes", "true or false is"),
    "array": (5, ""),  # a single kind may stand without a list
    "object": ("one", "keys with values are"),
}


def _resolved(described: Schema, definitions: Schema) -> Schema:
    name = described.get("$ref", "").rpartition("/")[2]
    return definitions[name] if name else described


def sample_of(described: Schema, definitions: Schema) -> Any:
    """Return a value that a JSON Schema allows."""
    described = _resolved(described, definitions)
    match described.get("type"):
        case "object":
            required = described.get("required", [])
            return {key: sample_of(described["properties"][key], definitions) for key in required}
        case "integer" | "number":
            return described.get("minimum", 0)
        case _:
            return "abc"


@of_each(lambda: OPERATIONS)
def test_limit_that_is_exceeded_says_how_large_the_value_is_and_may_be(name: str) -> None:
    operation, wrong = OPERATIONS[name], []

    for trail, request, says in mistakes_of(name):
        found = {each.trail: each.text for each in problems(operation.form, request, strict=True)}
        text = found.get(trail, f"no problem at {trail}: {found}")
        wrong += [(trail, word, text) for word in says if word not in text]

    assert wrong == []


def test_forms_have_limits_of_every_kind() -> None:
    kinds = {word for name in OPERATIONS for each in mistakes_of(name) for word in each.says}

    assert "too long: 100,001 characters, at most 100,000" in kinds
    assert "too many: 1,001 entries, at most 1,000" in kinds
    assert "did you mean 'episode'?" in kinds


@pytest.mark.parametrize(
    ("key", "says"),
    [
        pytest.param("extra", "unknown key 'extra'; known are user, agent, text,", id="far"),
        pytest.param("txt", "unknown key 'txt'; did you mean 'text'?", id="a letter is missing"),
        pytest.param("sesion", "did you mean 'session'?", id="one of two letters"),
        pytest.param("speaks", "did you mean 'speaker'?", id="another end"),
        pytest.param("role", "known are", id="another word"),
        pytest.param("tags", "known are", id="of as many letters"),
        pytest.param("content", "known are", id="a word of another interface"),
        pytest.param("timestamp", "known are", id="a longer word"),
    ],
)
def test_only_a_close_word_is_suggested(key: str, says: str) -> None:
    request = {"text": "x", key: "y"}

    [problem] = problems(OPERATIONS["remember"].form, request, strict=True)

    assert says in problem.text
    assert ("did you mean" in problem.text) == ("did you mean" in says)


@pytest.mark.parametrize("value", [{}, {"a": 1}, None, [["a", "b", "c"]], ["a:b"]])
def test_request_gets_no_remedy_that_only_yaml_needs(value: object) -> None:
    form, request = OPERATIONS["remember"].form, {"text": "x", "triples": value}

    [in_yaml] = problems(form, request, strict=True)
    [in_json] = problems(form, request, strict=True, is_yaml=False)

    assert in_json.text == in_yaml.text.rpartition(";")[0]


def test_page_of_the_limits_says_what_the_forms_say() -> None:
    page = PAGE.read_text().partition("## Limits")[2].partition("\n## ")[0]
    cells = dict(line.strip("| ").split(" | ") for line in page.splitlines() if " | " in line)
    remember, recall, many = (
        OPERATIONS[name].form.model_json_schema()["properties"]
        for name in ("remember", "recall", "put_many")
    )
    said = {what: cell.partition(" ")[0] for what, cell in cells.items()}

    assert said == {
        "what": "at",
        "a request, as JSON (`RequestTooLargeError`)": f"{MOST_REQUEST_BYTES:,}",
        "the text of an episode, a question": f"{remember['text']['maxLength']:,}",
        "the triples of an episode": f"{remember['triples']['maxItems']:,}",
        "the episodes of `put_many`": f"{many['episodes']['maxItems']:,}",
        "a name: user, agent, session, speaker, id, subject, predicate; a reason": (
            f"{remember['id']['anyOf'][0]['maxLength']:,}"
        ),
        "levels of nested values": str(MOST_DEPTH),
        "the items of a page (`limit`)": f"{recall['limit']['maximum']:,}",
        "a wait (`seconds`)": _most("outcome", "seconds"),
        "the budget of a context, in tokens": _most("context", "budget"),
    }


def _most(operation: str, field: str) -> str:
    schema = OPERATIONS[operation].form.model_json_schema()["properties"][field]
    return f"{schema['maximum']:,.0f}"


def test_a_request_with_many_mistakes_is_refused_by_the_first_ten() -> None:
    episodes = [{"text": "I live in Oslo.", "sesion": "s"}] * 10_000

    with pytest.raises(UsageError) as refused:
        read_form(OPERATIONS["put_many"], {"user": "ann", "episodes": episodes})

    assert "episodes[9].sesion: " in str(refused.value)
    assert str(refused.value).endswith("; and more mistakes")
    assert len(str(refused.value)) < 1_000
