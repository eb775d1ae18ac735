"""The contract of provenance sinks: an assertion is stored unchanged, or refused whole."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from decimal import Decimal
from enum import Enum
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Protocol, cast
from uuid import UUID

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slumberd.model.errors import ProvenanceError
from slumberd.model.provenance import ProvenanceBundle, assertion_document
from slumberd.workers.provenance.fathom_sink import FathomSink, open_engine, template_of
from slumberd.workers.provenance.publisher import FileSink, ProvenanceSink
from tests.support.builders import START
from tests.support.fakes import FakeSink

pytestmark = pytest.mark.integration

TEMPLATE = "stargraph.evidence"
SLOTS = ("subject", "predicate", "object", "source")
StoredSlots = list[dict[str, Any]]
Kind = Enum("Kind", ["GRAPH"])

needs_fathom = pytest.mark.skipif(
    find_spec("fathom") is None, reason="fathom-rules needs Python 3.12 or newer"
)


class InspectedSink(Protocol):
    """A sink, and the assertions that it stores."""

    @property
    def sink(self) -> ProvenanceSink: ...
    def stored(self) -> StoredSlots: ...


class InspectedFake:
    """The fake, and its assertions."""

    def __init__(self) -> None:
        self.sink = FakeSink()

    def stored(self) -> StoredSlots:
        return [slots for template, slots in self.sink.assertions if template == TEMPLATE]


class InspectedFile:
    """A file, and its lines."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "provenance.jsonl"
        self.sink = FileSink(self.path)

    def stored(self) -> StoredSlots:
        if not self.path.exists():
            return []
        lines = map(orjson.loads, self.path.read_bytes().splitlines())
        return [line["slots"] for line in lines if line["template"] == TEMPLATE]


class InspectedEngine:
    """An engine, and its facts."""

    def __init__(self) -> None:
        self.engine: Any = open_engine(None, {TEMPLATE: SLOTS})
        self.sink = FathomSink(self.engine)

    def stored(self) -> StoredSlots:
        found: StoredSlots = self.engine.query(template_of(TEMPLATE))
        return found


@asynccontextmanager
async def open_sink(kind: str) -> AsyncIterator[InspectedSink]:
    with TemporaryDirectory() as folder:
        if kind == "fake":
            yield InspectedFake()
            return
        inspected = InspectedFile(Path(folder)) if kind == "file" else InspectedEngine()
        yield inspected
        await inspected.sink.close()


KINDS = ["fake", "file", pytest.param("fathom", marks=needs_fathom)]
on_every_sink = pytest.mark.parametrize("kind", KINDS)


def slots(**other: object) -> dict[str, object]:
    plain: dict[str, object] = dict(zip(SLOTS, ("ada", "drinks", '"tea"', "graph"), strict=True))
    return plain | other


def bundle(**other: object) -> ProvenanceBundle:
    plain: dict[str, object] = {
        "origin": "graph_promotion",
        "source": "graph",
        "run_id": "evidence@1",
        "step": 0,
        "confidence": Decimal("0.3"),
        "timestamp": START,
    }
    return cast("ProvenanceBundle", plain | other)


def stored_form(slots: dict[str, object], bundle: ProvenanceBundle) -> dict[str, Any]:
    return dict(assertion_document(slots, bundle))


@on_every_sink
async def test_sink_implements_the_protocol(kind: str) -> None:
    async with open_sink(kind) as inspected:
        assert isinstance(inspected.sink, ProvenanceSink)
        method = type(inspected.sink).assert_with_provenance
        assert inspect.iscoroutinefunction(method)
        assert [*inspect.signature(method).parameters] == [
            "self", "template", "slots", "provenance",
        ]  # fmt: skip


@on_every_sink
async def test_sink_stores_an_assertion_and_its_provenance(kind: str) -> None:
    async with open_sink(kind) as inspected:
        given = (slots(), bundle(run_id=UUID(int=7), origin=Kind.GRAPH, confidence=1))
        await inspected.sink.assert_with_provenance(TEMPLATE, *given)
        [stored] = inspected.stored()
        if kind == "fathom":  # all of its slots are texts, except the numbers of rows
            assert stored.pop("_confidence") == "1"
            assert stored | {"_confidence": 1} == stored_form(*given)
        else:
            assert stored == stored_form(*given)


@on_every_sink
async def test_sink_stores_a_repeated_assertion_unchanged(kind: str) -> None:
    async with open_sink(kind) as inspected:
        for _ in range(3):
            await inspected.sink.assert_with_provenance(TEMPLATE, slots(), bundle())
        stored = inspected.stored()
        assert all(line == stored_form(slots(), bundle()) for line in stored)
        assert 1 <= len(stored) <= 3


@on_every_sink
@pytest.mark.parametrize(
    ("forged", "slot"),
    [
        pytest.param(lambda: (slots(_origin="forged"), bundle()), "_origin", id="an origin"),
        pytest.param(lambda: (slots(_step=1), bundle()), "_step", id="a step"),
        pytest.param(lambda: (slots(subject="a\0b"), bundle()), "subject", id="NUL"),
        pytest.param(lambda: (slots(subject=0.5), bundle()), "subject", id="a float"),
        pytest.param(lambda: (slots(), bundle(source="abc\n")), "_source", id="a line feed"),
        pytest.param(lambda: (slots(), bundle(source="a:b")), "_source", id="no identifier"),
        pytest.param(lambda: (slots(), bundle(run_id="(")), "_run_id", id="parentheses"),
        pytest.param(
            lambda: (slots(), bundle(timestamp=START.replace(tzinfo=None))),
            "_timestamp",
            id="naive",
        ),
        pytest.param(
            lambda: (slots(), bundle(confidence=0.3)),
            "_confidence",
            id="a confidence that is a float",
        ),
    ],
)
async def test_assertion_that_cannot_be_stored_is_refused_whole(
    kind: str, forged: Callable[[], tuple[dict[str, object], ProvenanceBundle]], slot: str
) -> None:
    async with open_sink(kind) as inspected:
        with pytest.raises(ProvenanceError) as caught:
            await inspected.sink.assert_with_provenance(TEMPLATE, *forged())
        assert caught.value.slot == slot
        assert inspected.stored() == []


TEXT = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]))
HOSTILE = st.sampled_from(
    ['"', "\\", '\\"', ")", "(assert (x))", "?x", "nil", "\n", "\r\n", "\u2028", "", " ", "TRUE"]
)


@pytest.mark.slow
@on_every_sink
@settings(max_examples=60, deadline=None)
@given(triples=st.lists(st.tuples(TEXT | HOSTILE, HOSTILE | TEXT, TEXT), max_size=4))
def test_every_text_is_stored_unchanged(kind: str, triples: list[tuple[str, str, str]]) -> None:
    async def main() -> None:
        async with open_sink(kind) as inspected:
            given = [slots(subject=s, predicate=p, object=o) for s, p, o in triples]
            for assertion in given:
                await inspected.sink.assert_with_provenance(TEMPLATE, assertion, bundle())
            expected = [stored_form(assertion, bundle()) for assertion in given]
            found = inspected.stored()
            assert all(line in found for line in expected)
            assert all(line in expected for line in found)

    asyncio.run(main())


@on_every_sink
async def test_sink_accepts_concurrent_assertions(kind: str) -> None:
    async with open_sink(kind) as inspected:
        async with asyncio.TaskGroup() as group:
            for step in range(50):
                group.create_task(
                    inspected.sink.assert_with_provenance(TEMPLATE, slots(), bundle(step=step))
                )
        assert sorted(line["_step"] for line in inspected.stored()) == [*range(50)]
