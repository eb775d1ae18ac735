"""Hands assertions to a Fathom engine, CLIPS in this process, and lets its rules run.

An engine begins empty, and holds what it is told in memory, some 3 KB for each fact. Nothing is
taken out again but what the ``ttl`` of its template says.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any, Protocol

import structlog

from slumberd.errors import ConfigurationError, ExtraMissingError, Mistake, ProvenanceError
from slumberd.model.provenance import ProvenanceBundle, asserted

EVIDENCE = "stargraph.evidence"
"""The template of what a graph promotes."""

EVIDENCE_SLOTS = ("subject", "predicate", "object", "source")

_PROVENANCE = ("_origin", "_source", "_run_id", "_step", "_confidence", "_timestamp")
_INTEGERS = ("seq", "_step")
_TEXTS = ("string", "symbol")
_KEY = "provenance.pack"

_log = structlog.get_logger("slumberd")


class Result(Protocol):
    """What an engine says of a step.

    Attributes:
        rule_trace: The rules that fired, in order.
        decision: The last of their decisions; None when none was made.
    """

    rule_trace: list[str]
    decision: str | None


class Engine(Protocol):
    """What is needed of ``fathom.Engine``."""

    @property
    def template_registry(self) -> Mapping[str, Any]:
        """The templates by name."""

    def load_templates(self, path: str) -> None:
        """Load a file of templates."""

    def load_pack_dir(self, path: str) -> None:
        """Load a directory of templates, modules, functions and rules."""

    def assert_fact(self, template: str, data: dict[str, Any]) -> None:
        """Assert a fact; one that is there already changes nothing."""

    def step(self) -> Result:
        """Let the rules fire that have not fired on what is there."""


def template_of(name: str) -> str:
    """Return a template's name as an engine takes it: no dots."""
    return name.replace(".", "-")


class FathomSink:
    """Asserts into an engine; implements ``ports.ProvenanceSink``.

    A fact that is told again equals the one that is there, and changes nothing: no rule fires
    twice. An engine is safe to be shared with other threads.

    Args:
        engine: A ``fathom.Engine``, its templates loaded.
        runs: Whether the engine's rules run after each assertion; what fired is logged.
    """

    def __init__(self, engine: Engine, *, runs: bool = False) -> None:
        self._engine = engine
        self._runs = runs
        # One thread: CLIPS must not hold up the event loop, nor two calls each other's threads.
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="fathom")

    async def assert_with_provenance(
        self, template: str, slots: Mapping[str, object], provenance: ProvenanceBundle
    ) -> None:
        """Assert a fact, of the template whose name has ``-`` for each dot.

        Raises:
            ProvenanceError: It has no form that could be stored, or the template takes no such
                value.
            fathom.errors.FathomError: There is no such template, it has no such slot, or the
                engine's rules do not come to an end.
        """
        told, name = asserted(slots, provenance), template_of(template)
        loop = asyncio.get_running_loop()
        await loop.run_in_executor(self._thread, self._assert, name, told)

    async def close(self) -> None:
        """Take no more; an evaluation under way is let go."""
        self._thread.shutdown(wait=False, cancel_futures=True)

    def _assert(self, template: str, told: dict[str, Any]) -> None:
        try:
            self._engine.assert_fact(template, told)
        except Exception as error:
            # What it says may quote the value, which is nobody's business in a log.
            if _is_of_the_value(error) and self._knows(template, told):
                slot = getattr(error, "slot", None) or template
                reason = f"is nothing that template {template!r} takes"
                raise ProvenanceError(slot, reason) from None
            raise
        if self._runs:
            self._run(template)

    def _knows(self, template: str, slots: Iterable[str]) -> bool:
        known = self._engine.template_registry.get(template)
        return known is not None and {slot.name for slot in known.slots} >= {*slots}

    def _run(self, template: str) -> None:
        result = self._engine.step()
        if result.rule_trace:
            _log.info(
                "provenance.concluded",
                template=template,
                rules=list(result.rule_trace),
                decision=result.decision,
            )


def _is_of_the_value(error: Exception) -> bool:
    return any(one.__name__ == "ValidationError" for one in type(error).__mro__)


def open_engine(pack: Path | None, templates: Mapping[str, Sequence[str]]) -> Engine:
    """Return a new engine with the rules of a pack, if any, and with some templates.

    Args:
        pack: A directory as ``fathom.Engine`` loads it, with ``templates/``, ``rules/`` and so on.
            A template of it may take the place of one of ours: it has the same slots, and perhaps
            more that need no value.
        templates: The slots of each template, by its name with or without dots.

    Raises:
        ExtraMissingError: The extra ``fathom`` is not installed.
        ConfigurationError: The pack cannot be loaded, or a template of it does not fit.
    """
    try:
        import fathom  # of an extra, and slow
        from fathom.compiler import Compiler
        from fathom.errors import CompilationError
    except ImportError as error:
        problem = "facts cannot be asserted to a Fathom engine, which needs Python 3.12 or newer"
        raise ExtraMissingError("fathom", problem) from error
    engine: Engine = fathom.Engine(default_decision=None)
    wanted = {template_of(name): slots for name, slots in templates.items()}
    own: set[str] = set()
    for file in pack.rglob("*.yaml") if pack else ():
        with suppress(
            CompilationError, OSError, ValueError
        ):  # told below, if it is meant to hold templates at all
            own |= {one.name for one in Compiler().parse_template_file(file)}
    try:
        # Ours come first, for the rules of a pack speak of them.
        _load_templates(engine, {name: wanted[name] for name in wanted if name not in own})
        if pack is not None:
            engine.load_pack_dir(str(pack))
    except (CompilationError, OSError, ValueError) as error:
        raise _mistaken(pack, [_described(error)]) from error
    if problems := [one for name in wanted for one in _misfits(engine, name, wanted[name])]:
        raise _mistaken(pack, problems)
    return engine


def _load_templates(engine: Engine, templates: Mapping[str, Sequence[str]]) -> None:
    document = {
        "templates": [
            {"name": name, "slots": [_slot(slot) for slot in (*slots, *_PROVENANCE)]}
            for name, slots in templates.items()
        ]
    }
    with NamedTemporaryFile("w", suffix=".yaml") as file:
        json.dump(document, file)  # JSON is YAML
        file.flush()
        engine.load_templates(file.name)


def _slot(name: str) -> dict[str, str]:
    return {"name": name, "type": "integer" if name in _INTEGERS else "string"}


def _misfits(engine: Engine, template: str, slots: Sequence[str]) -> Iterator[str]:
    """Yield why a template could not take what it will be told."""
    told = {*slots, *_PROVENANCE}
    found = {slot.name: slot for slot in engine.template_registry[template].slots}
    for name in sorted(told - found.keys()):
        yield f"template {template!r} has no slot {name!r}"
    for name, slot in found.items():
        if name not in told and slot.required and slot.default is None:
            yield f"template {template!r} requires slot {name!r}, which nobody fills"
        if name in told and slot.type not in (("integer",) if name in _INTEGERS else _TEXTS):
            yield f"slot {name!r} of template {template!r} cannot be of type {slot.type}"


def _described(error: Exception) -> str:
    detail = getattr(error, "detail", None)
    return " ".join(f"{error}{f': {detail}' if detail else ''}".split())


def _mistaken(pack: Path | None, problems: Iterable[str]) -> ConfigurationError:
    return ConfigurationError([Mistake(str(pack or ""), 0, 0, _KEY, one) for one in problems])
