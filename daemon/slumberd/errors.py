"""Every error that slumberd raises on purpose.

Each class builds its own message from typed fields and keeps them, so that a caller can
act on the fields and a person can act on the message::

    SlumberdError
    ├── UsageError                        the command line asks for what cannot be (exit 64)
    │   └── PatternError                  a pattern of facts that cannot be read
    ├── InputError                        data of a user that cannot be read       (exit 65)
    │   └── UnreadableEpisodeError        an episode that a strict put refuses
    ├── NoInputError                      a file that should be there is not       (exit 66)
    ├── BackupError                       a backup that is not whole               (exit 65)
    ├── NothingKeptError                  an erasure of a scope that holds nothing (exit 66)
    ├── NotQuarantinedError               an episode that is not in quarantine     (exit 66)
    ├── NotConfirmedError                 a person did not confirm an erasure      (exit 1)
    ├── OutputExistsError                 a file that would be overwritten         (exit 73)
    ├── NotRunningError                   a daemon is needed and none answers      (exit 69)
    ├── ConfigurationError                configuration or rules with mistakes     (exit 78)
    ├── ExtraMissingError                 an optional part is not installed        (exit 78)
    ├── ProvenanceError                   an assertion that no sink could store    (exit 65)
    ├── ReloadFailedError                 a daemon keeps the rules that it had     (exit 1)
    └── StoreError                        the stores                               (exit 74)
        ├── MemoryScopeError              an episode where it does not belong      (exit 65)
        │   └── ForgottenError            an episode of a scope that was forgotten
        ├── ConsolidationRuleError        a rule or a delta that breaks its form   (exit 78)
        │   ├── FilterError               a ``when_filter`` that must not run, or cannot
        │   └── PromotionError            what a graph says cannot be promoted     (exit 65)
        ├── FactConflictError             a fact id or replaced id held elsewhere  (exit 65)
        ├── GraphStoreError               a graph that cannot be opened or asked   (exit 74)
        ├── MigrationNotSupportedError    also importable as ``MigrationNotSupported``
        ├── SchemaError                   a file of another version or program  (exit 74)
        ├── LedgerKeyError                a ledger and a key that do not belong together (exit 78)
        ├── UnportableCypherError         a query that must not run on a graph     (exit 78)
        ├── StoreBusyError                another process holds the lock           (exit 75)
        ├── BackupBusyError               a backup cannot be made at this moment   (exit 75)
        ├── StateDirectoryLockedError     another daemon works on this directory   (exit 75)
        ├── SupersededError               what is open is the store no more        (exit 75)
        │   ├── StaleWriterError          another daemon has taken over
        │   └── StoreReplacedError        another file, or content, is in its place
        ├── FiringTimeoutError            a firing took longer than its rule lets it (exit 75)
        ├── StoppedError                  a pass was told to stop; nothing written (exit 75)
        └── PermissionDeniedError         a file may not be read or written        (exit 77)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

__all__ = [
    "BackupBusyError",
    "BackupError",
    "ConfigurationError",
    "ConsolidationRuleError",
    "ExtraMissingError",
    "FactConflictError",
    "FilterError",
    "FiringTimeoutError",
    "ForgottenError",
    "GraphStoreError",
    "InputError",
    "LedgerKeyError",
    "MemoryScopeError",
    "MigrationNotSupported",
    "MigrationNotSupportedError",
    "Mistake",
    "NoInputError",
    "NotConfirmedError",
    "NotQuarantinedError",
    "NotRunningError",
    "NothingKeptError",
    "OutputExistsError",
    "PatternError",
    "PermissionDeniedError",
    "PromotionError",
    "ProvenanceError",
    "ReloadFailedError",
    "SchemaError",
    "SlumberdError",
    "StaleWriterError",
    "StateDirectoryLockedError",
    "StoppedError",
    "StoreBusyError",
    "StoreError",
    "StoreReplacedError",
    "SupersededError",
    "UnportableCypherError",
    "UnreadableEpisodeError",
    "UsageError",
]


class SlumberdError(Exception):
    """Anything that slumberd refuses or fails to do.

    Attributes:
        exit_code: What the command line ends with, after sysexits.
        see: Where to read more.
    """

    exit_code: ClassVar[int] = 70
    see: ClassVar[str | None] = None

    @property
    def message(self) -> str:
        """The text of the error."""
        return str(self)

    @property
    def context(self) -> dict[str, Any]:
        """The fields of the error by name; a copy."""
        return {name: value for name, value in vars(self).items() if not name.startswith("_")}

    @property
    def hint(self) -> str | None:
        """What to do about it, when the error keeps that in a field of its own."""
        remedy = self.context.get("remedy")
        return remedy if isinstance(remedy, str) else None


class UsageError(SlumberdError):
    """The command line asks for something that cannot be."""

    exit_code = 64


class PatternError(UsageError):
    """A pattern of facts holds what cannot be read.

    Attributes:
        slot: The part of the pattern, as ``subject``.
        text: What it holds.
        problem: What is wrong with it.
        position: Character of the text, from 0; None when the whole is meant.
    """

    def __init__(self, slot: str, text: str, problem: str, position: int | None = None) -> None:
        self.slot = slot
        self.text = text
        self.problem = problem
        self.position = position
        where = "" if position is None else f" at character {position + 1}"
        super().__init__(f"{slot} {text!r}{where}: {problem}")


class InputError(SlumberdError):
    """Data that a user handed over cannot be read."""

    exit_code = 65


class BackupError(SlumberdError):
    """A backup is not complete, is damaged, or does not fit the configuration.

    Attributes:
        folder: Its directory.
        problem: What is wrong with it.
    """

    exit_code = 65

    def __init__(self, folder: Path, problem: str) -> None:
        self.folder = folder
        self.problem = problem
        super().__init__(f"backup {str(folder)!r} {problem}")


class UnreadableEpisodeError(InputError):
    """A strict put refuses an episode, because every rule would quarantine the episode.

    Attributes:
        episode_id: The episode.
        reason: The reason of the quarantine, as ``intent_unknown``.
        detail: What is wrong, and what to write instead.
    """

    def __init__(self, episode_id: str, reason: str, detail: str) -> None:
        self.episode_id = episode_id
        self.reason = reason
        self.detail = detail
        super().__init__(
            f"episode {episode_id!r}: every rule would quarantine it ({reason}): {detail}"
        )


class NoInputError(SlumberdError):
    """A file that should be there is not."""

    exit_code = 66

    def __init__(self, path: Path | str, remedy: str) -> None:
        self.path = path
        self.remedy = remedy
        super().__init__(f"{str(path)!r} does not exist: {remedy}")


class NothingKeptError(SlumberdError):
    """A scope is to be erased, and nothing is kept of it.

    Attributes:
        user: The user.
        session: The session; None for all.
        agent: The agent; None for all.
    """

    exit_code = 66

    def __init__(self, user: str, session: str | None = None, agent: str | None = None) -> None:
        self.user = user
        self.session = session
        self.agent = agent
        axes = {"user": user, "session": session, "agent": agent}
        scope = ", ".join(f"{axis} {part!r}" for axis, part in axes.items() if part is not None)
        super().__init__(f"nothing is kept of {scope}; case and spelling count")


class NotQuarantinedError(SlumberdError):
    """Episodes are named that are not in quarantine; nothing was changed.

    Attributes:
        episode_ids: Their ids.
    """

    exit_code = 66

    def __init__(self, episode_ids: Sequence[str]) -> None:
        self.episode_ids = tuple(episode_ids)
        named = ", ".join(map(repr, self.episode_ids[:10]))
        more = f" and {len(self.episode_ids) - 10} more" if len(self.episode_ids) > 10 else ""
        super().__init__(
            f"not in quarantine: {named}{more}; nothing was changed,"
            " `slumberd quarantine ls` lists what is there"
        )


class NotConfirmedError(SlumberdError):
    """A person was asked whether to erase a scope, and did not confirm."""

    exit_code = 1

    def __init__(self) -> None:
        super().__init__("nothing was erased")


class ExtraMissingError(SlumberdError):
    """An optional part of slumberd is asked for and not installed.

    Attributes:
        extra: Its name, as pip takes it.
        consequence: What cannot be done without it.
    """

    exit_code = 78

    def __init__(self, extra: str, consequence: str) -> None:
        self.extra = extra
        self.consequence = consequence
        super().__init__(f"{consequence}: install it with `pip install 'slumberd[{extra}]'`")


class ProvenanceError(SlumberdError, ValueError):
    """An assertion, or where it comes from, has no form that a sink could store as it is.

    Attributes:
        slot: The name of what is wrong, as ``_source``.
        reason: What is wrong with it.
    """

    exit_code = 65

    def __init__(self, slot: str, reason: str) -> None:
        self.slot = slot
        self.reason = reason
        super().__init__(f"slot {slot!r}: {reason}")


class OutputExistsError(SlumberdError):
    """A file or directory that a command would create is there already.

    Attributes:
        path: Where it is.
        remedy: What to do.
    """

    exit_code = 73

    def __init__(self, path: Path, remedy: str = "name a new file") -> None:
        self.path = path
        self.remedy = remedy
        super().__init__(f"{str(path)!r} is there already: {remedy}")


class NotRunningError(SlumberdError):
    """A command needs the daemon, and none answers."""

    exit_code = 69


@dataclass(frozen=True, slots=True)
class Mistake:
    """One thing that is wrong in one file.

    Attributes:
        file: The file as the operator named it.
        line: From 1; 0 when the file as a whole is meant.
        column: From 1; 0 when the line as a whole is meant.
        path: Where in the document, as ``rules[0].cadence.every``; may be empty.
        problem: What is wrong, and what to write instead.
    """

    file: str
    line: int
    column: int
    path: str
    problem: str

    def __str__(self) -> str:
        place = ":".join(str(part) for part in (self.file, self.line, self.column) if part)
        return ": ".join(part for part in (place, self.path, self.problem) if part)


class ConfigurationError(SlumberdError):
    """Configuration or rule files hold mistakes; all of them are listed.

    Attributes:
        mistakes: Every mistake of every file, in file order, then by position.
        rules_dir: Where the rules are, when these are mistakes of a configuration that says it.
    """

    exit_code = 78

    def __init__(self, mistakes: Sequence[Mistake], *, rules_dir: Path | None = None) -> None:
        self.mistakes = list(mistakes)
        self.rules_dir = rules_dir
        super().__init__("\n".join(str(mistake) for mistake in self.mistakes))


class ReloadFailedError(SlumberdError):
    """A running daemon cannot take the rules that there are now, and keeps those that it had.

    Attributes:
        cause: What is wrong with them.
    """

    exit_code = 1

    def __init__(self, cause: SlumberdError | OSError) -> None:
        self.cause = cause
        super().__init__(f"the daemon keeps the rules that it had:\n{cause}")


class StoreError(SlumberdError):
    """A store cannot do what was asked."""

    exit_code = 74


class MemoryScopeError(StoreError):
    """An episode, or a read, does not fit its scope.

    Attributes:
        scope: The ``(user, session, agent)`` in question.
        operation: The call that was refused, as ``put``.
        violation: What is wrong with it.
    """

    exit_code = 65

    def __init__(self, scope: tuple[str | None, ...], operation: str, violation: str) -> None:
        self.scope = scope
        self.operation = operation
        self.violation = violation
        super().__init__(f"{operation} in scope {scope!r}: {violation}")


class ForgottenError(MemoryScopeError):
    """An episode says something as of a time up to which its scope was forgotten."""

    def __init__(self, scope: tuple[str | None, ...], episode_id: str) -> None:
        problem = f"episode {episode_id!r} is of a scope, and a time, that was forgotten"
        super().__init__(scope, "put", problem)


class ConsolidationRuleError(StoreError, ValueError):
    """A rule, or a delta that claims to come from one, breaks its form.

    Attributes:
        rule_id: The rule; may be empty when that is the violation.
        delta_type: The delta's kind, as ``add``, or empty when the rule itself is meant.
        violation: What is wrong, as ``source_episode_ids must be non-empty``.
    """

    exit_code = 78

    def __init__(self, rule_id: str, delta_type: str, violation: str) -> None:
        self.rule_id = rule_id
        self.delta_type = delta_type
        self.violation = violation
        subject = f"{delta_type} delta of rule {rule_id!r}" if delta_type else f"rule {rule_id!r}"
        super().__init__(f"{subject}: {violation}")


class FilterError(ConsolidationRuleError):
    """A ``when_filter`` that must not run, cannot be compiled, or ran over its budget.

    Attributes:
        problem: What is wrong, without the place.
        position: Character offset in the filter, from 0; None when the whole is meant.
        further: Others of the same filter that are known already.
    """

    def __init__(
        self,
        rule_id: str,
        violation: str,
        *,
        position: int | None = None,
        further: Sequence[FilterError] = (),
    ) -> None:
        self.problem = violation
        self.position = position
        self.further = tuple(further)
        where = "" if position is None else f" at character {position + 1}"
        super().__init__(rule_id, "", f"when_filter{where}: {violation}")


class PromotionError(ConsolidationRuleError):
    """What a graph says cannot be promoted, so nothing of it was.

    Attributes:
        row: The number of the row that is meant, from 1; 0 when it is no single one.
        problem: What is wrong, without the place.
    """

    exit_code = 65

    def __init__(self, rule_id: str, problem: str, *, row: int = 0) -> None:
        self.row = row
        self.problem = problem
        where = f"row {row} of the graph's answer: " if row else ""
        super().__init__(rule_id, "", f"{where}{problem}; nothing was promoted")


class FactConflictError(StoreError):
    """A fact id is held by another user, agent or channel, or cannot be resolved.

    Attributes:
        fact_id: The id in question.
    """

    exit_code = 65

    def __init__(self, fact_id: str, violation: str) -> None:
        self.fact_id = fact_id
        self.violation = violation
        super().__init__(f"fact {fact_id!r}: {violation}")


class GraphStoreError(StoreError):
    """A graph cannot be opened, read or written.

    Attributes:
        path: Its file; ``:memory:`` for a graph in memory.
        problem: What is wrong.
    """

    def __init__(self, path: Path | str, problem: str) -> None:
        self.path = path
        self.problem = problem
        super().__init__(f"graph {str(path)!r}: {problem}")


class UnportableCypherError(StoreError):
    """A Cypher query that does not mean the same everywhere, or that must not run here.

    Attributes:
        cypher: The query.
        violation: The rule that it breaks; the same as `rule`, as the specification has it.
        rule: One word, as ``varlen-unbounded``.
        match: What of the query breaks it; may be empty when the whole does.
        problem: What is wrong and what to write instead, without the place.
        position: Character offset in the query, from 0; None when the whole is meant.
    """

    exit_code = 78

    def __init__(  # the specification's fields, and where and how to mend it
        self,
        cypher: str,
        rule: str,
        problem: str,
        *,
        match: str = "",
        position: int | None = None,
    ) -> None:
        self.cypher = cypher
        self.violation = rule
        self.rule = rule
        self.match = match
        self.problem = problem
        self.position = position
        where = "" if position is None else f" at character {position + 1}"
        super().__init__(f"cypher{where}: {rule}: {problem}")


class MigrationNotSupportedError(StoreError):
    """A migration plan asks for more than adding nullable columns.

    Attributes:
        store: ``sqlite_memory`` or ``sqlite_fact``.
        operation: The ``op`` that was refused; ``target_version`` when it is the plan's version.
        reason: ``v1-add-column-only``, ``non-nullable-add``, ``missing-fields`` or another.
    """

    def __init__(self, store: str, operation: str, reason: str) -> None:
        self.store = store
        self.operation = operation
        self.reason = reason
        super().__init__(f"migration {operation!r} of {store}: {reason}")


MigrationNotSupported = MigrationNotSupportedError
"""The specification's name."""


class SchemaError(StoreError):
    """A file is no database of ours, is damaged, or another version of slumberd wrote it."""

    def __init__(self, path: Path, problem: str) -> None:
        self.path = path
        self.problem = problem
        super().__init__(f"{str(path)!r}: {problem}")


class LedgerKeyError(StoreError):
    """The ledger was begun with another key than the one that is given, or with none."""

    exit_code = 78

    def __init__(self, path: Path, problem: str) -> None:
        self.path = path
        self.problem = problem
        super().__init__(f"{str(path)!r}: {problem}")


class StoreBusyError(StoreError):
    """Another process held a database's lock for longer than we wait."""

    exit_code = 75

    def __init__(self, path: Path, waited_seconds: float) -> None:
        self.path = path
        self.waited_seconds = waited_seconds
        super().__init__(
            f"{str(path)!r} is locked by another process (waited {waited_seconds:g} s): try again"
        )


class BackupBusyError(StoreError):
    """A backup cannot be made at this moment.

    Attributes:
        path: What is busy.
        problem: With what, and what to do.
    """

    exit_code = 75

    def __init__(self, path: Path, problem: str) -> None:
        self.path = path
        self.problem = problem
        super().__init__(f"{str(path)!r} {problem}")


class StateDirectoryLockedError(StoreError):
    """Another slumberd works on this state directory."""

    exit_code = 75

    def __init__(self, path: Path, holder: str) -> None:
        self.path = path
        self.holder = holder
        super().__init__(
            f"state directory {str(path)!r} is in use by another slumberd ({holder}): "
            "stop it first, or give this one its own --state-dir"
        )


class SupersededError(StoreError):
    """What this process has open is no longer the store; nothing more is written there."""

    exit_code = 75


class StoreReplacedError(SupersededError):
    """Another file lies in a store's place, or another content in its file."""

    def __init__(self, path: Path, problem: str) -> None:
        self.path = path
        self.problem = problem
        super().__init__(f"{str(path)!r} {problem}; nothing written: open it anew")


class StaleWriterError(SupersededError):
    """Another daemon has taken over the fact store since this one started."""

    def __init__(self, path: Path, ours: int, current: int) -> None:
        self.path = path
        self.ours = ours
        self.current = current
        super().__init__(
            f"{str(path)!r} has a newer writer: epoch {current}, ours was {ours}; nothing written"
        )


class StoppedError(StoreError):
    """A pass over a store was told to stop and rolled back."""

    exit_code = 75


class FiringTimeoutError(StoreError):
    """A firing took longer than its rule lets it; its last batch was taken back."""

    exit_code = 75

    def __init__(self, rule_id: str, seconds: float) -> None:
        self.rule_id = rule_id
        self.seconds = seconds
        super().__init__(
            f"rule {rule_id!r} fired for more than its timeout of {seconds:g} s; the batch under"
            " way was taken back, the next firing goes on after the last whole one"
        )


class PermissionDeniedError(StoreError):
    """The operating system does not let us read or write a file."""

    exit_code = 77

    def __init__(self, path: Path, action: str) -> None:
        self.path = path
        self.action = action
        super().__init__(f"{str(path)!r}: no permission to {action} it; check owner and mode")
