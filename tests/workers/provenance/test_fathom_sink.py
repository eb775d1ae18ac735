"""The Fathom engine as a sink, with real CLIPS where it can be installed."""

from __future__ import annotations

import asyncio
import json
import sys
import threading
from collections.abc import AsyncIterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from slumberd.model.errors import ConfigurationError, ExtraMissingError, ProvenanceError
from slumberd.model.provenance import SLOTS, bundle_of, slots_of
from slumberd.workers.graph.promotion import EVIDENCE
from slumberd.workers.provenance.fathom_sink import FathomSink, open_engine, template_of
from tests.support.builders import promotion
from tests.support.waiting import PATIENCE_SECONDS

pytestmark = pytest.mark.unit

FACT = "slumberd.fact"
NAME = "slumberd-fact"
needs_fathom = pytest.mark.skipif(
    find_spec("fathom") is None, reason="fathom-rules needs Python 3.12 or newer"
)

DOUBTS = {
    "modules": {"modules": [{"name": "review", "description": "", "priority": 100}]},
    "rules": {
        "module": "review",
        "ruleset": "doubts",
        "version": "1.0",
        "rules": [
            {
                "name": "doubt",
                "salience": 10,
                "when": [
                    {
                        "template": NAME,
                        "conditions": [{"slot": "kind", "expression": "equals(update)"}],
                    }
                ],
                "then": {"action": "escalate", "reason": "a fact was replaced"},
            }
        ],
    },
}
"""A pack with one rule: a promotion that replaces a fact is to be reviewed."""


def pack_of(folder: Path, **kinds: Any) -> Path:
    for kind, document in kinds.items():
        (folder / "pack" / kind).mkdir(parents=True, exist_ok=True)
        (folder / "pack" / kind / "pack.yaml").write_text(json.dumps(document))
    return folder / "pack"


def slots_in(template: list[dict[str, Any]], **more: Any) -> dict[str, Any]:
    return {"templates": [{"name": NAME, "slots": template, **more}]}


def slots_that_fit(**changed: Any) -> list[dict[str, Any]]:
    names = [*SLOTS, "_origin", "_source", "_run_id", "_step", "_confidence", "_timestamp"]
    types = {"seq": "integer", "_step": "integer"} | changed
    return [{"name": name, "type": types.get(name, "string")} for name in names]


def engine_of(pack: Path | None = None) -> Any:
    return open_engine(pack, {FACT: SLOTS})


@pytest.fixture
async def sink() -> AsyncIterator[FathomSink]:
    sink = FathomSink(engine_of(), run_rules=True)
    yield sink
    await sink.close()


async def publish(sink: FathomSink, seq: int = 1, **other: Any) -> None:
    promoted = promotion(seq, **other)
    await sink.assert_with_provenance(FACT, slots_of(promoted), bundle_of(promoted))


def test_error_without_the_extra_names_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "fathom", None)
    with pytest.raises(ExtraMissingError, match=r"Python 3\.12.*slumberd\[fathom\]") as caught:
        engine_of()
    assert caught.value.extra == "fathom"


def test_name_of_a_template_has_no_dots() -> None:
    assert template_of("stargraph.evidence") == "stargraph-evidence"


@needs_fathom
async def test_rules_of_a_pack_fire_once_on_an_assertion(tmp_path: Path) -> None:
    sink = FathomSink(engine_of(pack_of(tmp_path, **DOUBTS)), run_rules=True)
    with capture_logs() as logs:
        await publish(sink, 1)
        for _ in range(2):
            await publish(sink, 2, kind="update", replaces=("e1",))
    await sink.close()
    assert logs == [
        {
            "event": "provenance.concluded",
            "log_level": "info",
            "template": NAME,
            "rules": ["review::doubt"],
            "decision": "escalate",
        }
    ]


@needs_fathom
async def test_engine_that_is_not_run_fires_no_rule(tmp_path: Path) -> None:
    engine = engine_of(pack_of(tmp_path, **DOUBTS))
    sink = FathomSink(engine)
    with capture_logs() as logs:
        await publish(sink, 2, kind="update", replaces=("e1",))
    await sink.close()
    assert logs == []
    assert engine.evaluate().decision == "escalate"


@needs_fathom
def test_template_of_a_pack_replaces_the_default(tmp_path: Path) -> None:
    more = [*slots_that_fit(rule="symbol"), {"name": "seen", "type": "string", "default": "no"}]
    pack = pack_of(tmp_path, templates=slots_in(more, ttl=60))
    engine = engine_of(pack)
    assert engine.template_registry[NAME].ttl == 60


@needs_fathom
@pytest.mark.parametrize(
    ("template", "problem"),
    [
        pytest.param(slots_that_fit()[1:], "has no slot 'seq'", id="a slot is missing"),
        pytest.param(
            [*slots_that_fit(), {"name": "more", "type": "string", "required": True}],
            "requires slot 'more'",
            id="another slot is required",
        ),
        pytest.param(
            slots_that_fit(seq="string"), "'seq'.*cannot be of type string", id="a number"
        ),
        pytest.param(slots_that_fit(user="float"), "'user'.*cannot be of type float", id="a text"),
    ],
)
def test_template_that_does_not_fit_is_refused(
    tmp_path: Path, template: list[dict[str, Any]], problem: str
) -> None:
    pack = pack_of(tmp_path, templates=slots_in(template))
    with pytest.raises(ConfigurationError, match=problem) as caught:
        engine_of(pack)
    assert caught.value.mistakes[0].path == "provenance.pack"


@needs_fathom
def test_pack_that_cannot_be_loaded_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="not a directory"):
        engine_of(tmp_path / "nowhere")
    with pytest.raises(ConfigurationError, match="nothing to load"):
        engine_of(tmp_path)
    broken = pack_of(tmp_path, templates={"templates": [{"name": "a b", "slots": []}]})
    with pytest.raises(ConfigurationError, match="a b"):
        engine_of(broken)


@needs_fathom
async def test_value_that_a_template_refuses_is_not_quoted(
    tmp_path: Path,
) -> None:
    slots = [{**slot, **({"allowed_values": ["bob"]} if slot["name"] == "user" else {})}
             for slot in slots_that_fit()]  # fmt: skip
    sink = FathomSink(engine_of(pack_of(tmp_path, templates=slots_in(slots))))
    with pytest.raises(ProvenanceError) as caught:
        await publish(sink)
    await sink.close()
    assert caught.value.slot == "user"
    assert "alice" not in str(caught.value)


@needs_fathom
async def test_unknown_template_is_an_error_of_the_engine(sink: FathomSink) -> None:
    from fathom.errors import ValidationError

    promoted = promotion()
    with pytest.raises(ValidationError, match="Unknown template"):
        await sink.assert_with_provenance("other", slots_of(promoted), bundle_of(promoted))
    with pytest.raises(ValidationError, match="Unknown slot"):
        await sink.assert_with_provenance(FACT, {"another": "x"}, bundle_of(promoted))


@needs_fathom
def test_promoted_triples_have_a_template() -> None:
    slots = ("subject", "predicate", "object", "source")
    engine: Any = open_engine(None, {FACT: SLOTS, EVIDENCE: slots})
    assert set(engine.template_registry) == {NAME, "stargraph-evidence"}


class SlowEngine:
    """An engine whose assertions wait for the test."""

    def __init__(self) -> None:
        self.template_registry: dict[str, Any] = {}
        self.begun, self.go_on = threading.Event(), threading.Event()
        self.calls = 0

    def assert_fact(self, template: str, data: dict[str, Any]) -> None:
        self.calls += 1
        self.begun.set()
        assert self.go_on.wait(PATIENCE_SECONDS)

    def load_templates(self, path: str) -> None:
        raise NotImplementedError

    load_pack_dir = load_templates

    def step(self) -> Any:
        raise NotImplementedError


async def test_engine_blocks_one_thread_only_and_not_the_loop() -> None:
    engine = SlowEngine()
    sink = FathomSink(engine)
    async with asyncio.TaskGroup() as group:
        asserting = [group.create_task(publish(sink)) for _ in range(3)]
        await asyncio.to_thread(engine.begun.wait, PATIENCE_SECONDS)
        for task in asserting:
            task.cancel()
    engine.go_on.set()
    await publish(sink)
    await sink.close()
    assert engine.calls == 2  # two assertions were cancelled before they began
