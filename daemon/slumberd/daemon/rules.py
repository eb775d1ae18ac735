"""Choose the rules of a configuration and what checks them, and keep which rules are paused."""

from __future__ import annotations

import inspect
import os
import stat
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import orjson

from slumberd.file_modes import create_file
from slumberd.model.errors import (
    ConfigurationError,
    ExtraMissingError,
    Mistake,
    StoreError,
    UsageError,
)
from slumberd.model.rule import RulesToPublish
from slumberd.operations.pauses import PauseStore
from slumberd.rules.file_access import is_installed
from slumberd.rules.filters.sandbox import filter_checker
from slumberd.rules.function_loader import load_function
from slumberd.rules.rule_loader import (
    CheckCypher,
    CheckModel,
    RuleSet,
    load_rule_texts,
    load_rules,
    read_rule_texts,
)
from slumberd.rules.settings import Settings
from slumberd.storage.protocols import RuleSets
from slumberd.workers.graph.cypher_linter import Linter
from slumberd.workers.scheduling import cron


def rules_of(settings: Settings) -> RuleSet:
    """Load the rules that a configuration names: those of files, or the newest published ones.

    Raises:
        ConfigurationError: With every mistake of every rule file; or no rules were published.
        StoreError: The database with the published rules cannot be read.
    """
    if not settings.are_rules_published:
        return rules_of_files(settings, settings.rules_dir)
    sets = rule_sets_of(settings)
    published = sets.read()
    if published is None:
        problem = (
            "no rules were published yet; `slumberd rules publish` publishes those of a directory"
        )
        raise ConfigurationError([Mistake(sets.where, 0, 0, "postgres.rules", problem)])
    rules = rules_of_texts(settings, published.texts, f"published/{published.version}")
    return replace(rules, version=published.version)


def rules_of_files(settings: Settings, directory: Path) -> RuleSet:
    """Load the rules of a directory, for a configuration.

    Raises:
        ConfigurationError: With every mistake of every rule file.
    """
    if settings.host_store is not None:
        return _rules_for_host(settings, settings.host_store, directory)
    graph = settings.graph_path is not None
    model = settings.language_model.base_url is not None
    return rules_in(directory, settings.timezone, graph=graph, model=model)


_HOST_KEYS = frozenset(
    {
        "id", "cadence", "when_filter", "then_emits", "enabled", "on_missed", "catchup_window",
        "timeout", "description",
    }
)  # fmt: skip
"""The keys of a rule that have an effect on a host's own store."""


def _rules_for_host(settings: Settings, factory: str, directory: Path) -> RuleSet:
    """Load the rules for a host's own store, whose filters only the store can check."""
    rules = load_rules(
        directory,
        check_filter=lambda _, __: None,
        check_cron=cron.check,
        timezone=settings.timezone,
    )
    mistakes = [
        Mistake(rules.sources[rule.id], 0, 0, f"rule {rule.id}", f"{key!r} {_NEEDS_OWN}")
        for rule in rules.rules
        for key, field in type(rule).model_fields.items()
        if key not in _HOST_KEYS and getattr(rule, key) != field.default
    ]
    mistakes += [
        Mistake(str(directory), 0, 0, f"channels.{name}", _NEEDS_OWN) for name in rules.multi_valued
    ]
    try:
        make = load_function(factory).call
        inspect.signature(make).bind()
    except ValueError as error:
        mistakes.append(Mistake("settings", 0, 0, "host_store", str(error)))
    except TypeError as error:
        problem = f"{error}; write `def {factory.rpartition(':')[2]}()`"
        mistakes.append(Mistake("settings", 0, 0, "host_store", problem))
    if mistakes:
        raise ConfigurationError(mistakes)
    return rules


_NEEDS_OWN = "needs slumberd's own stores, and 'host_store' names others; leave it out"


def rules_of_texts(settings: Settings, texts: Mapping[str, str], place: str) -> RuleSet:
    """Load the rules of texts, for a configuration.

    Args:
        texts: The text of each file, by its name within a directory of rules.
        place: What stands for that directory in messages.

    Raises:
        ConfigurationError: With every mistake of every text.
    """
    with filter_checker() as check:
        return load_rule_texts(
            texts,
            place,
            check_filter=check,
            check_cron=cron.check,
            timezone=settings.timezone,
            check_cypher=make_cypher_check(graph=settings.graph_path is not None),
            check_model=make_model_check(model=settings.language_model.base_url is not None),
        )


def rule_sets_of(settings: Settings) -> RuleSets:
    """Return the published rules of a configuration.

    Raises:
        UsageError: The configuration names no database.
    """
    if settings.store is None:
        problem = "rules are published in a database; set 'store' in the configuration"
        raise UsageError(problem)
    from slumberd.daemon import postgres_stores

    return postgres_stores.rule_sets_of(settings)


def rules_in(directory: Path, timezone: str, *, graph: bool = True, model: bool = True) -> RuleSet:
    """Load the rules of a directory.

    Args:
        directory: The directory of rule files.
        timezone: The time zone of cron rules without one.
        graph: Whether the configuration names a graph that rules may promote.
        model: Whether the configuration names a language model that rules may ask.

    Raises:
        ConfigurationError: With every mistake of every rule file.
    """
    with filter_checker() as check:
        return load_rules(
            directory,
            check_filter=check,
            check_cron=cron.check,
            timezone=timezone,
            check_cypher=make_cypher_check(graph=graph),
            check_model=make_model_check(model=model),
        )


def make_cypher_check(*, graph: bool) -> CheckCypher:
    """Return the check of a graph rule's query; the first query loads the parser."""
    linter = Linter()

    def check(cypher: str) -> None:
        linter.check_reading(cypher)
        if not graph:
            raise UsageError("there is no graph to promote; set 'graph.path' in the configuration")

    return check


def make_model_check(*, model: bool) -> CheckModel:
    """Return the check of rules that ask a language model.

    Args:
        model: Whether the configuration names one.
    """

    def check() -> None:
        if not is_installed("llm"):
            raise ExtraMissingError("llm", "a language model cannot be asked")
        if not model:
            problem = "there is no language model to ask"
            raise UsageError(f"{problem}; set 'language_model.base_url' in the configuration")

    return check


def paused_rules_of(settings: Settings, holder: str | None = None) -> PauseStore:
    """Return where the paused rules of a configuration are kept.

    Args:
        holder: Under which name this process must hold the database to change them; None for any.
    """
    if settings.store is not None:
        from slumberd.daemon import postgres_stores

        return postgres_stores.paused_rules_of(settings, holder)
    return PausedFile(settings.state_dir)


def rules_to_publish(
    settings: Settings, directory: Path, *, by: str, reason: str
) -> RulesToPublish:
    """Check the rules of a directory, and return them for their publication.

    Args:
        directory: The directory of rule files.
        reason: Why; empty without a reason.

    Raises:
        ConfigurationError: With every mistake of every rule file.
    """
    rules_of_files(settings, directory)
    texts = read_rule_texts(directory)
    # A file may have changed since it was checked, and other hosts load these texts.
    rules = rules_of_texts(settings, texts, str(directory))
    return RulesToPublish(rules.content_hash, texts, by, reason)


PAUSED_FILE = "paused.json"
_PAUSED_VERSION = 1


def paused_in(directory: Path) -> dict[str, str]:
    """Return who paused each paused rule of a state directory, by the rule's id.

    Raises:
        StoreError: The file cannot be read, or has another form.
    """
    file = directory / PAUSED_FILE
    try:
        found = orjson.loads(_content(file))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise _unreadable(file) from error
    paused = found.get("paused") if isinstance(found, dict) else None
    if not isinstance(paused, dict) or not all(isinstance(by, str) for by in paused.values()):
        raise _unreadable(file)
    return paused


def _content(file: Path) -> bytes:
    # Without O_NONBLOCK, opening a FIFO would block until another program writes to it.
    descriptor = os.open(file, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(descriptor, "rb") as reading:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(f"{str(file)!r} is no file")
        return reading.read()


def _unreadable(file: Path) -> StoreError:
    return StoreError(f"{str(file)!r} cannot be read: delete it to resume every rule")


def write_paused(file: Path, paused: dict[str, str]) -> None:
    """Write which rules are paused into a file, atomically.

    Raises:
        StoreError: The file cannot be written.
    """
    fresh = file.with_suffix(".new")
    try:
        fresh.unlink(missing_ok=True)
        with os.fdopen(create_file(fresh, os.O_WRONLY), "wb") as writing:
            writing.write(orjson.dumps({"version": _PAUSED_VERSION, "paused": paused}) + b"\n")
            writing.flush()
            os.fsync(writing.fileno())
        fresh.replace(file)
    except OSError as error:
        raise StoreError(f"{str(file)!r} cannot be written: {error.strerror}") from error


class PausedFile:
    """Keeps which rules are paused in a file beside the databases.

    Args:
        directory: The state directory.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def read(self) -> dict[str, str]:
        """Return who paused each paused rule, by the rule's id."""
        return paused_in(self._directory)

    def write(self, paused: dict[str, str]) -> None:
        """Write which rules are paused."""
        write_paused(self._directory / PAUSED_FILE, paused)
