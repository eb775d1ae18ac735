"""Load the Python functions that rules name. This runs the code of their modules."""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import inspect
import sys
from collections.abc import Iterable, Iterator
from importlib.machinery import ModuleSpec, SourceFileLoader
from itertools import product
from pathlib import Path
from types import ModuleType
from typing import Any, Protocol

from slumberd.consolidation.extraction.function import FunctionExtractor
from slumberd.model.errors import Mistake
from slumberd.model.extraction import Extraction, ModelSummariser
from slumberd.model.rule import RuleFunction, describe_exception
from slumberd.rules.file_access import check_world_writable
from slumberd.rules.pattern_loader import model_summariser
from slumberd.rules.rule_schema import AnyRuleForm, RuleForm
from slumberd.rules.validation import PREFIX
from slumberd.rules.yaml_reader import Trail

_ARGUMENTS = {"extract": ("turn", "before"), "summarise": ("turns", "max_tokens")}
"""The arguments of a function, by the stage that calls it."""


class FunctionPlace(Protocol):
    """A rule in a file, which may name functions."""

    def text(self, *keys: str | int) -> str:
        """Return a text of the rule; empty when there is none, or when it has a mistake."""
        ...

    def mistake(self, *keys: str | int, problem: str) -> Mistake:
        """Return a mistake at a key of the rule."""
        ...

    def forms_of(self, stage: str) -> list[Trail]:
        """Return where the forms of a stage are; a list of extractions has several."""
        ...


class Functions:
    """The functions that rules name; each is loaded once.

    Args:
        by_root: Whether root loads them. For root, a module that everybody can write is a mistake.
            None asks the process.
    """

    def __init__(self, by_root: bool | None) -> None:
        self._by_root = by_root
        self._loaded: dict[str, RuleFunction] = {}

    def check(self, places: Iterable[FunctionPlace]) -> Iterator[Mistake]:
        """Load the functions of rules; yield what is wrong with them."""
        for place, stage in product(places, _ARGUMENTS):
            for trail in place.forms_of(stage):
                name = place.text(*trail, "with")
                try:
                    if name.startswith(PREFIX):
                        self._load(name, _ARGUMENTS[stage])
                except ValueError as error:
                    yield place.mistake(*trail, "with", problem=str(error))

    def _load(self, name: str, arguments: tuple[str, str]) -> None:
        if name not in self._loaded:
            self._loaded[name] = load_function(name, by_root=self._by_root)
        _check_callable(self._loaded[name].call, name, arguments)

    def extraction(self, name: str) -> Extraction:
        """Return the extraction by a function that `check` loaded."""
        function = self._loaded[name]
        extractor = FunctionExtractor(function)
        return Extraction(name, function.digest, extractor, reads_previous=True)

    def summariser(self, form: AnyRuleForm) -> RuleFunction | ModelSummariser | None:
        """Return the function or the model that writes a rule's summaries; None for neither."""
        stages = form.stages if isinstance(form, RuleForm) else []
        found = next((stage.summarise for stage in stages if stage.summarise is not None), None)
        if found is None:
            return None
        if found.model is not None:
            return model_summariser(found.model, found.instructions, found.parameters)
        return self._loaded.get(found.method)


def load_function(name: str, *, by_root: bool | None = None) -> RuleFunction:
    """Load a function. A module that this function loaded before is loaded again if it changed.

    Args:
        name: The function, as `stage_schema.FUNCTION` describes it.
        by_root: Whether root loads it. For root, a module that everybody can write is refused.
            None asks the process.

    Raises:
        ValueError: There is no such function, or its module cannot be imported.
    """
    module_name, _, function_name = name.removeprefix(PREFIX).partition(":")
    spec = _find_module(module_name)
    source = _read_source(module_name, spec, by_root)
    module = _import(spec, source)
    try:
        call = getattr(module, function_name)
    except AttributeError as error:
        problem = f"module {module_name!r} has no function {function_name!r}"
        raise ValueError(f"{problem}; define it in {spec.origin}") from error
    digest = hashlib.sha256(f"{name}\0".encode() + source).hexdigest()[:16]
    return RuleFunction(name, digest, call)


def _find_module(name: str) -> ModuleSpec:
    importlib.invalidate_caches()
    try:
        spec = importlib.util.find_spec(name)
    except ModuleNotFoundError as error:
        raise ValueError(_describe_missing(error.name or name)) from error
    except (Exception, SystemExit) as error:
        parent = name.rpartition(".")[0]
        raise ValueError(_describe_failure(parent or name, error)) from error
    if spec is None:
        raise ValueError(_describe_missing(name))
    return spec


def _describe_missing(name: str) -> str:
    return f"there is no module {name!r}; install it into the environment of slumberd, {sys.prefix}"


def _describe_failure(name: str, error: BaseException) -> str:
    return f"module {name!r} cannot be imported: {describe_exception(error)}"


def _read_source(name: str, spec: ModuleSpec, by_root: bool | None) -> bytes:
    """Return the bytes of the file of a module."""
    if not spec.has_location or spec.origin is None:
        raise ValueError(f"module {name!r} has no file of its own; name a module with a file")
    file = Path(spec.origin)
    try:
        if wrong := list(check_world_writable(file, by_root=by_root)):
            raise ValueError(f"{file}: {wrong[0].problem}")
        return file.read_bytes()
    except OSError as error:
        raise ValueError(f"{file} cannot be read: {error.strerror}") from error


class _CurrentLoader(SourceFileLoader):
    """Loads a module from bytes that were read before, and from no cache.

    The digest of a function and its code come from the same bytes. A cache can be older than the
    file: Python compares the times of both in whole seconds.
    """

    def __init__(self, name: str, file: str, source: bytes) -> None:
        super().__init__(name, file)
        self.source = source

    def get_data(self, _: str) -> bytes:
        """Return the bytes."""
        return self.source

    def path_stats(self, path: str) -> Any:  # noqa: ANN401 - as in the base class
        """Raise OSError: then Python neither reads nor writes a cache."""
        raise OSError(f"{path} is loaded without a cache")


def _import(spec: ModuleSpec, source: bytes) -> ModuleType:
    """Return the module of a specification, with the code of a source."""
    known = sys.modules.get(spec.name)
    loader = known.__spec__.loader if known is not None and known.__spec__ is not None else None
    changed = isinstance(loader, _CurrentLoader) and loader.source != source
    try:
        if type(spec.loader) in (SourceFileLoader, _CurrentLoader) and (changed or known is None):
            return _execute(spec.name, str(spec.origin), source)
        return importlib.import_module(spec.name)
    except (Exception, SystemExit) as error:
        raise ValueError(_describe_failure(spec.name, error)) from error


def _execute(name: str, file: str, source: bytes) -> ModuleType:
    loader = _CurrentLoader(name, file, source)
    spec = importlib.util.spec_from_file_location(name, file, loader=loader)
    if spec is None:
        raise ImportError(f"no specification for {file}")
    module = importlib.util.module_from_spec(spec)
    before = sys.modules.get(name)
    sys.modules[name] = module
    try:
        loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        if before is not None:
            sys.modules[name] = before
        raise
    return module


def _check_callable(call: object, name: str, arguments: tuple[str, str]) -> None:
    what = f"function {name.rpartition(':')[2]!r}"
    remedy = f"write `def {name.rpartition(':')[2]}({', '.join(arguments)})`"
    if not callable(call):
        problem = f"{what} is a value of type {type(call).__name__}; {remedy}"
        raise ValueError(problem)  # noqa: TRY004 # as for any other wrong name
    if inspect.iscoroutinefunction(call) or inspect.isasyncgenfunction(call):
        raise ValueError(f"{what} is asynchronous; {remedy}")
    try:
        inspect.signature(call).bind(*arguments)
    except ValueError:
        return  # a function in C may not have a signature
    except TypeError as error:
        raise ValueError(f"{what} does not take two arguments ({error}); {remedy}") from error
