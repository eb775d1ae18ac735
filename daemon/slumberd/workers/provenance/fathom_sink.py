"""Assert promotions in a Fathom engine, and run its rules.

The engine is CLIPS in this process. It starts empty and keeps all facts in memory, some 3 KB each.
It removes a fact only when the ``ttl`` of the fact's template has passed.
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

from slumberd.model.errors import ConfigurationError, ExtraMissingError, Mistake, ProvenanceError
from slumberd.model.provenance import ProvenanceBundle, assertion_document

_PROVENANCE = ("_origin", "_source", "_run_id", "_step", "_confidence", "_timestamp")
_INTEGERS = ("seq", "_step")
_TEXTS = ("string", "symbol")
_KEY = "provenance.pack"

_log = structlog.get_logger("slumberd")


class FathomResult(Protocol):
    """The result of running an engine's rules.

    Attributes:
        rule_trace: The rules that fired, in order.
        decision: Their last decision; None without one.
    """

    rule_trace: list[str]
    decision: str | None


class FathomEngine(Protocol):
    """The part of ``fathom.Engine`` that the sink uses."""

    @property
    def template_registry(self) -> Mapping[str, Any]:
        """The templates by name."""

    def load_templates(self, path: str) -> None:
        """Load a file of templates."""

    def load_pack_dir(self, path: str) -> None:
        """Load a directory of templates, modules, functions and rules."""

    def assert_fact(self, template: str, data: dict[str, Any]) -> None:
        """Assert a fact; an equal fact that exists already changes nothing."""

    def step(self) -> FathomResult:
        """Fire the rules that have not fired on the present facts yet."""


def template_of(name: str) -> str:
    """Return the name of a template in an engine, which accepts no dots."""
    return name.replace(".", "-")


class FathomSink:
    """Asserts facts in an engine; implements `ProvenanceSink`.

    A repeated assertion equals the fact that exists, and changes nothing: no rule fires twice.
    Several threads may share an engine.

    Args:
        engine: A ``fathom.Engine`` with its templates loaded.
        run_rules: Whether the engine's rules run after each assertion; fired rules are logged.
    """

    def __init__(self, engine: FathomEngine, *, run_rules: bool = False) -> None:
        self._engine = engine
        self._run_rules = run_rules
        # One thread: CLIPS must not block the event loop, nor calls wait in several threads.
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="fathom")

    async def assert_with_provenance(
        self, template: str, slots: Mapping[str, object], provenance: ProvenanceBundle
    ) -> None:
        """Assert a fact; the engine's template has ``-`` for each dot of the name.

        Raises:
            ProvenanceError: The assertion cannot be stored in any form, or the template does not
                accept a value.
            fathom.errors.FathomError: The template or a slot is unknown, or the engine's rules do
                not terminate.
        """
        values, name = assertion_document(slots, provenance), template_of(template)
        loop = asyncio.get_running_loop()
        await loop.run_in_executor(self._thread, self._assert, name, values)

    async def close(self) -> None:
        """Accept no more assertions; do not wait for one that is being evaluated."""
        self._thread.shutdown(wait=False, cancel_futures=True)

    def _assert(self, template: str, values: dict[str, Any]) -> None:
        try:
            self._engine.assert_fact(template, values)
        except Exception as error:
            # The engine's message may quote the value, which must not be logged.
            if _is_validation_error(error) and self._has_slots(template, values):
                slot = getattr(error, "slot", None) or template
                reason = f"has a value that template {template!r} does not accept"
                raise ProvenanceError(slot, reason) from None
            raise
        if self._run_rules:
            self._fire_rules(template)

    def _has_slots(self, template: str, slots: Iterable[str]) -> bool:
        known = self._engine.template_registry.get(template)
        return known is not None and {slot.name for slot in known.slots} >= {*slots}

    def _fire_rules(self, template: str) -> None:
        result = self._engine.step()
        if result.rule_trace:
            _log.info(
                "provenance.concluded",
                template=template,
                rules=list(result.rule_trace),
                decision=result.decision,
            )


def _is_validation_error(error: Exception) -> bool:
    return any(base.__name__ == "ValidationError" for base in type(error).__mro__)


def open_engine(pack: Path | None, templates: Mapping[str, Sequence[str]]) -> FathomEngine:
    """Return a new engine with the given templates, and with the rules of a pack.

    Args:
        pack: A directory that ``fathom.Engine`` loads, with ``templates/``, ``rules/`` and so on;
            None for no pack. A template of the pack replaces the given one of the same name. It
            must have the same slots, and may have more that need no value.
        templates: The slots of each template, by its name with or without dots.

    Raises:
        ExtraMissingError: The extra ``fathom`` is not installed.
        ConfigurationError: The pack cannot be loaded, or one of its templates does not fit.
    """
    try:
        import fathom  # part of an extra, and slow to import
        from fathom.compiler import Compiler
        from fathom.errors import CompilationError
    except ImportError as error:
        problem = "facts cannot be asserted in a Fathom engine, which needs Python 3.12 or newer"
        raise ExtraMissingError("fathom", problem) from error
    engine: FathomEngine = fathom.Engine(default_decision=None)
    wanted = {template_of(name): slots for name, slots in templates.items()}
    own: set[str] = set()
    for file in pack.rglob("*.yaml") if pack else ():
        # Not every file holds templates; `load_pack_dir` below reports those that are invalid.
        with suppress(CompilationError, OSError, ValueError):
            own |= {template.name for template in Compiler().parse_template_file(file)}
    try:
        # The given templates are loaded first, because the rules of a pack refer to them.
        _load_templates(engine, {name: wanted[name] for name in wanted if name not in own})
        if pack is not None:
            engine.load_pack_dir(str(pack))
    except (CompilationError, OSError, ValueError) as error:
        raise _configuration_error(pack, [_describe(error)]) from error
    problems = [text for name in wanted for text in _template_problems(engine, name, wanted[name])]
    if problems:
        raise _configuration_error(pack, problems)
    return engine


def _load_templates(engine: FathomEngine, templates: Mapping[str, Sequence[str]]) -> None:
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


def _template_problems(engine: FathomEngine, template: str, slots: Sequence[str]) -> Iterator[str]:
    """Yield why a template cannot hold the assertions of the publisher."""
    filled = {*slots, *_PROVENANCE}
    found = {slot.name: slot for slot in engine.template_registry[template].slots}
    for name in sorted(filled - found.keys()):
        yield f"template {template!r} has no slot {name!r}"
    for name, slot in found.items():
        if name not in filled and slot.required and slot.default is None:
            yield f"template {template!r} requires slot {name!r}, which slumberd does not fill"
        if name in filled and slot.type not in (("integer",) if name in _INTEGERS else _TEXTS):
            yield f"slot {name!r} of template {template!r} cannot be of type {slot.type}"


def _describe(error: Exception) -> str:
    detail = getattr(error, "detail", None)
    return " ".join(f"{error}{f': {detail}' if detail else ''}".split())


def _configuration_error(pack: Path | None, problems: Iterable[str]) -> ConfigurationError:
    return ConfigurationError(
        [Mistake(str(pack or ""), 0, 0, _KEY, problem) for problem in problems]
    )
