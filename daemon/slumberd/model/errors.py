"""The errors that slumberd raises on purpose.

Each class builds its message from typed fields and keeps them. Code reads the fields; a person
reads the message. The field ``where`` of an error names the store in words for a person: the path
of its file, or the address of its database without a password::

    SlumberdError
    ├── UsageError                        a request that is impossible           (exit 64)
    │   ├── OtherSettingsError            a directory that is open with other settings
    │   ├── PatternError                  a malformed pattern of facts
    │   ├── ShardNotNamedError            a request that names neither a shard nor a user
    │   └── WrongShardError               a request for another shard than its user's
    ├── InputError                        malformed data of a user               (exit 65)
    │   ├── AgentSettingsError            settings of a coding agent that cannot be edited
    │   ├── UnreadableEpisodeError        an episode that a strict put refuses
    │   ├── FutureInstantError            an instant of a request that is still to come
    │   ├── KeyReusedError                a key that was used for other content
    │   ├── RecordRefusedError            a record that a store cannot return unchanged
    │   ├── RowsNotCopiedError            rows that another kind of store cannot hold
    │   ├── UnreadableTracesError         traces in another form than OTLP's
    │   └── WrongFormatError              a file in another format than the named one
    ├── NoInputError                      a missing file                         (exit 66)
    ├── BackupError                       an incomplete or damaged backup        (exit 65)
    ├── NothingKeptError                  an erasure of nothing                  (exit 66)
    ├── NotQuarantinedError               an episode that is not quarantined     (exit 66)
    ├── NotConfirmedError                 a change without a confirmation        (exit 1)
    ├── BytesPendingError                 erased bytes that are still on the disk (exit 71)
    ├── OutputExistsError                 a file that would be overwritten       (exit 73)
    ├── NotRunningError                   a command without its daemon           (exit 69)
    ├── ConfigurationError                configuration or rules with mistakes   (exit 78)
    ├── ExtraMissingError                 an extra that is not installed         (exit 78)
    ├── ProvenanceError                   an assertion that no sink can store    (exit 65)
    ├── ReloadFailedError                 a reload with mistakes                 (exit 1)
    ├── UnknownHostError                  a host that is not served              (exit 77)
    └── StoreError                        a store that failed                    (exit 74)
        ├── MemoryScopeError              an episode or read outside its scope   (exit 65)
        │   └── ForgottenError            an episode of an erased scope
        ├── ConsolidationRuleError        a malformed rule or delta              (exit 78)
        │   ├── FilterError               a ``when_filter`` that is refused
        │   └── PromotionError            triples that cannot be promoted        (exit 65)
        ├── FactConflictError             a fact id of another scope             (exit 65)
        ├── GraphStoreError               a graph that cannot be used            (exit 74)
        ├── MigrationNotSupportedError    also importable as ``MigrationNotSupported``
        ├── SchemaError                   a store of another schema              (exit 74)
        ├── StageNotesError               notes of stages that are damaged       (exit 74)
        ├── DamagedStoreError             a store with values of others          (exit 74)
        ├── InstantRangeError             a stored instant that no clock shows   (exit 74)
        ├── LedgerKeyError                a key of another ledger                (exit 78)
        ├── UnportableCypherError         a Cypher query that is refused         (exit 78)
        ├── StoreBusyError                a database that is locked              (exit 75)
        ├── BackupBusyError               a backup that must wait                (exit 75)
        ├── StateDirectoryLockedError     a state directory in use               (exit 75)
        ├── DatabaseHeldError             a database in use                      (exit 75)
        ├── UserMovingError               a user on the way to another shard     (exit 75)
        ├── DatabaseUnreachableError      a database server that is away         (exit 69)
        ├── OldPrimaryError               a database server that was replaced    (exit 69)
        ├── SourceChangedError            a store that changed while it was copied (exit 75)
        ├── OtherRulesPublishedError      rules that somebody else published first (exit 75)
        ├── UnsupportedByStoreError       what this kind of store does not do    (exit 64)
        ├── SupersededError               a store that this daemon has lost      (exit 75)
        │   ├── StaleWriterError          another daemon writes the store
        │   ├── LeaseLostError            another daemon holds the database
        │   └── StoreReplacedError        another store has its place
        │       └── TailLostError         a database without its last commits
        ├── FiringTimeoutError            a firing that took too long            (exit 75)
        ├── StoppedError                  work that was stopped                  (exit 75)
        ├── StoreClosedError              a closed store of records
        └── PermissionDeniedError         an access without permission           (exit 77)
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, ClassVar, Literal


class SlumberdError(Exception):
    """The base of all errors of slumberd.

    Attributes:
        exit_code: The exit code of the command line, after sysexits.
        see: Where to read more; None without a page.
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
        """The remedy, when the error has one in a field of its own."""
        remedy = self.context.get("remedy")
        return remedy if isinstance(remedy, str) else None


class UsageError(SlumberdError):
    """A request is wrong, or impossible."""

    exit_code = 64


class PatternError(UsageError):
    """A pattern of facts is malformed.

    Attributes:
        slot: The part of the pattern, as ``subject``.
        text: The text of that part.
        problem: What is wrong with it.
        position: The offset of the character, from 0; None for the whole text.
    """

    def __init__(self, slot: str, text: str, problem: str, position: int | None = None) -> None:
        self.slot = slot
        self.text = text
        self.problem = problem
        self.position = position
        where = "" if position is None else f" at character {position + 1}"
        super().__init__(f"{slot} {text!r}{where}: {problem}")


class OtherSettingsError(UsageError):
    """A directory is open in this program, with other settings than it has now.

    Attributes:
        path: The directory.
        differing: The settings that differ.
    """

    def __init__(self, path: str, differing: Sequence[str]) -> None:
        self.path = path
        self.differing = tuple(differing)
        super().__init__(
            f"{path!r} is open in this program, with other settings: {', '.join(differing)}; close "
            "it everywhere, then open it again"
        )


class ShardNotNamedError(UsageError):
    """A request concerns one shard, and names neither a shard nor a user.

    Attributes:
        where: The database.
        shards: The numbers of its shards.
    """

    def __init__(self, where: str, shards: Sequence[int]) -> None:
        self.where = where
        self.shards = tuple(shards)
        super().__init__(
            f"{where!r} has the shards {', '.join(map(str, self.shards))}: name one, as --shard"
            f" {self.shards[0]} at the command line or as the field 'shard' of a request"
        )


class WrongShardError(UsageError):
    """A request is for another shard than that of the user whom it names.

    Attributes:
        user: The user.
        shard: The shard of the user.
        named: The shard of the request.
    """

    def __init__(self, user: str, shard: int, named: int) -> None:
        self.user = user
        self.shard = shard
        self.named = named
        super().__init__(f"user {user!r} lies in shard {shard}, and not in shard {named}")


class InputError(SlumberdError):
    """Data of a user is malformed."""

    exit_code = 65


class BackupError(SlumberdError):
    """A backup is not complete, is damaged, or does not fit the configuration.

    Attributes:
        folder: Its directory.
        problem: What is wrong with it.
    """

    exit_code = 65

    def __init__(self, folder: str, problem: str) -> None:
        self.folder = folder
        self.problem = problem
        super().__init__(f"backup {folder!r} {problem}")


class AgentSettingsError(InputError):
    """The settings of a coding agent cannot be edited; they stay as they are.

    Attributes:
        path: The file.
        problem: What is wrong with it.
        remedy: What to do.
    """

    def __init__(self, path: str, problem: str) -> None:
        self.path = path
        self.problem = problem
        self.remedy = "mend the file, or write the hooks into it by hand; nothing was changed"
        super().__init__(f"{path!r} {problem}: {self.remedy}")


class UnreadableTracesError(InputError):
    """A request with traces has another form than OTLP's.

    Attributes:
        fault: What is wrong: its form, its length, or how it is encoded.
        problem: Why it cannot be read.
    """

    def __init__(self, fault: Literal["form", "length", "encoding"], problem: str) -> None:
        self.fault = fault
        self.problem = problem
        super().__init__(f"the traces cannot be read: {problem}")


class UnreadableEpisodeError(InputError):
    """A strict put refuses an episode, because every rule would quarantine the episode.

    Attributes:
        episode_id: The episode.
        reason: The reason of the quarantine, for example ``intent_unknown``.
        detail: What is wrong, and what to write instead.
    """

    def __init__(self, episode_id: str, reason: str, detail: str) -> None:
        self.episode_id = episode_id
        self.reason = reason
        self.detail = detail
        super().__init__(
            f"episode {episode_id!r}: every rule would quarantine it ({reason}): {detail}"
        )


class FutureInstantError(InputError):
    """A request gives an instant that is still to come.

    Attributes:
        field: The field of the request.
        at: The instant.
    """

    def __init__(self, field: str, at: datetime) -> None:
        self.field = field
        self.at = at
        super().__init__(
            f"{field!r} is {at:%Y-%m-%d %H:%M:%S}Z, which is still to come; give the time at which "
            "it was said, or none for now, and name a coming date in the text"
        )


class SecretRefusedError(InputError, ValueError):
    """A text holds secrets, and ``capture.secrets`` is ``refuse``.

    Attributes:
        kinds: How many secrets of each kind it holds.
    """

    def __init__(self, kinds: Mapping[str, int]) -> None:
        self.kinds = dict(kinds)
        found = ", ".join(f"{count} {kind}" for kind, count in sorted(kinds.items()))
        super().__init__(
            f"the text holds secrets ({found}), so nothing was stored; remove them, or set "
            "'capture.secrets: mask' in the configuration"
        )


class KeyReusedError(InputError):
    """A key of an episode was used for other content.

    Attributes:
        key: The key.
    """

    def __init__(self, key: str) -> None:
        self.key = key
        super().__init__(
            f"the key {key!r} was used for another text, metadata or session; use a new key"
        )


class RecordRefusedError(InputError, ValueError):
    """A record cannot be stored, so none of its batch was.

    Attributes:
        position: The place of the record in the batch, from 0.
        problem: What is wrong with it.
    """

    def __init__(self, position: int, problem: str) -> None:
        self.position = position
        self.problem = problem
        super().__init__(f"record {position}: {problem}; nothing was written")


class RowsNotCopiedError(InputError):
    """Rows, mostly of another program, cannot be stored in another kind of store.

    Attributes:
        where: The store.
        table: Their table.
        rows: The first of them, in words.
        count: How many there are.
    """

    def __init__(self, where: str, table: str, rows: Sequence[str], count: int) -> None:
        self.where = where
        self.table = table
        self.rows = rows
        self.count = count
        more = f" and {count - len(rows)} more" if count > len(rows) else ""
        super().__init__(
            f"{where!r}: {count} of the rows of {table} cannot be copied: {', '.join(rows)}{more}; "
            "correct or delete them, and copy again"
        )


class WrongFormatError(InputError):
    """A file or folder is not in the format that its caller names.

    Attributes:
        format: The name of the format.
        place: The line, or the file, that shows it.
        problem: What is wrong there.
    """

    def __init__(self, format: str, place: str, problem: str) -> None:  # noqa: A002 # what it is
        self.format = format
        self.place = place
        self.problem = problem
        remedy = "name the format of the input with --format"
        super().__init__(f"{place} is not in the format {format!r}: {problem}; {remedy}")


class NoInputError(SlumberdError):
    """A file, a fact or an episode does not exist."""

    exit_code = 66

    def __init__(self, path: str, remedy: str) -> None:
        self.path = path
        self.remedy = remedy
        super().__init__(f"{path!r} does not exist: {remedy}")


class NothingKeptError(SlumberdError):
    """An erasure names a scope that holds nothing, or what no scope of the caller holds.

    Attributes:
        user: The user; None when only an episode or a fact is named.
        session: The session; None for all.
        agent: The agent; None for all.
        episode: The episode; None for a scope or a fact.
        fact: The fact; None for a scope or an episode.
    """

    exit_code = 66

    def __init__(
        self,
        user: str | None,
        session: str | None = None,
        agent: str | None = None,
        *,
        episode: str | None = None,
        fact: str | None = None,
    ) -> None:
        self.user = user
        self.session = session
        self.agent = agent
        self.episode = episode
        self.fact = fact
        axes = {
            "user": user, "session": session, "agent": agent, "episode": episode, "fact": fact,
        }  # fmt: skip
        scope = ", ".join(f"{axis} {part!r}" for axis, part in axes.items() if part is not None)
        super().__init__(f"nothing is stored of {scope}; case and spelling count")


class NotQuarantinedError(SlumberdError):
    """Some named episodes are not in quarantine, so nothing was changed.

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
    """A person did not confirm what cannot be taken back.

    Attributes:
        done: What was not done, as ``erased``.
    """

    exit_code = 1

    def __init__(self, done: str = "erased") -> None:
        self.done = done
        super().__init__(f"nothing was {done}")


class ExtraMissingError(SlumberdError):
    """An extra of slumberd is needed and not installed.

    Attributes:
        extra: Its name, for pip.
        consequence: What is impossible without it.
    """

    exit_code = 78

    def __init__(self, extra: str, consequence: str) -> None:
        self.extra = extra
        self.consequence = consequence
        super().__init__(f"{consequence}: install it with `pip install 'slumberd[{extra}]'`")


class ProvenanceError(SlumberdError, ValueError):
    """An assertion, or its provenance, has no form that a sink can store unchanged.

    Attributes:
        slot: The slot that is wrong, for example ``_source``.
        reason: What is wrong with it.
    """

    exit_code = 65

    def __init__(self, slot: str, reason: str) -> None:
        self.slot = slot
        self.reason = reason
        super().__init__(f"slot {slot!r}: {reason}")


class BytesPendingError(SlumberdError):
    """A scope is erased, and nothing returns it; a database still has bytes of it on the disk.

    Attributes:
        firing_id: The erasure.
        stores: By store with old bytes: what its rewriting waits for.
        remedy: What to do.
    """

    exit_code = 71

    def __init__(self, firing_id: str, stores: Mapping[str, str]) -> None:
        self.firing_id = firing_id
        self.stores = dict(stores)
        self.remedy = (
            "a running daemon removes them, and logs erasure.completed; `slumberd doctor` says "
            "what it waits for"
        )
        why = "; ".join(f"{store}: {problem}" for store, problem in self.stores.items())
        super().__init__(
            f"{firing_id} erased the scope, but old bytes are still on the disk ({why}): "
            f"{self.remedy}"
        )


class OutputExistsError(SlumberdError):
    """A file or directory that a command would create exists already.

    Attributes:
        path: Where it is.
        remedy: What to do.
    """

    exit_code = 73

    def __init__(self, path: str, remedy: str = "name a new file") -> None:
        self.path = path
        self.remedy = remedy
        super().__init__(f"{path!r} exists already: {remedy}")


class NotRunningError(SlumberdError):
    """A command needs the daemon, and no daemon answers."""

    exit_code = 69


class LanguageModelError(SlumberdError):
    """A language model was not asked, or gave no answer."""

    exit_code = 69


class InvalidAnswerError(LanguageModelError):
    """The answer of a language model is not what was asked for.

    Attributes:
        problem: What is wrong.
    """

    def __init__(self, problem: str) -> None:
        self.problem = problem
        super().__init__(f"the answer of the language model is invalid: {problem}")


class ModelUnavailableError(LanguageModelError):
    """The server of a language model gives no answer now.

    Attributes:
        where: The address of the server.
        problem: What happened.
        retry_seconds: The pause that the server asks for; None when it asks for none.
    """

    exit_code = 75

    def __init__(self, where: str, problem: str, retry_seconds: float | None = None) -> None:
        self.where = where
        self.problem = problem
        self.retry_seconds = retry_seconds
        super().__init__(f"the language model at {where!r} is not available: {problem}")


class ModelRequestError(LanguageModelError):
    """The server of a language model does not accept the request.

    Attributes:
        where: The address of the server.
        status: The status code of HTTP.
        problem: What the server says.
    """

    exit_code = 78

    def __init__(self, where: str, status: int, problem: str) -> None:
        self.where = where
        self.status = status
        self.problem = problem
        super().__init__(
            f"the language model at {where!r} does not accept the request: HTTP {status}: "
            f"{problem}; check 'language_model' in the configuration, and 'model' of the rule"
        )


class ModelNotCheckedError(LanguageModelError):
    """A language model does not answer the question that checks it; nothing was written.

    Attributes:
        where: The address of the server.
        problem: What happened.
    """

    def __init__(self, where: str, problem: str) -> None:
        self.where = where
        self.problem = problem
        super().__init__(
            f"the language model at {where!r} gives no answer: {problem}; nothing was written, and "
            "--no-check writes without asking"
        )


class BudgetSpentError(LanguageModelError):
    """The budget of the day for language models is spent.

    Attributes:
        kind: ``calls``, ``tokens`` or ``cost``.
        spent: What was spent of it.
        limit: What may be spent in a day.
    """

    exit_code = 75

    def __init__(self, kind: str, spent: float, limit: float) -> None:
        self.kind = kind
        self.spent = spent
        self.limit = limit
        super().__init__(
            f"the budget of {limit:g} {kind} a day is spent ({spent:g}); the episodes wait until "
            f"tomorrow UTC, or raise 'language_model.budget.{kind}' in the configuration"
        )


@dataclass(frozen=True, slots=True)
class Mistake:
    """One mistake in one file.

    Attributes:
        file: The file, as the operator named it.
        line: From 1; 0 for the whole file.
        column: From 1; 0 for the whole line.
        path: The place in the document, as ``rules[0].cadence.every``; may be empty.
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


_INSTALL = re.compile(r"`pip install 'slumberd\[(\w+)\]'`")


def _join_missing_extras(mistakes: Sequence[Mistake]) -> list[Mistake]:
    """Return the mistakes with one for each missing extra, at its first place."""
    wanted = [found[1] if (found := _INSTALL.search(each.problem)) else None for each in mistakes]
    joined = []
    for number, (mistake, extra) in enumerate(zip(mistakes, wanted, strict=True)):
        if extra is None or wanted.count(extra) == 1:
            joined.append(mistake)
        elif extra not in wanted[:number]:
            more = wanted.count(extra) - 1
            problem = (
                f"{mistake.problem}; {more} more {'place needs' if more == 1 else 'places need'} it"
            )
            joined.append(replace(mistake, problem=problem))
    return joined


class ConfigurationError(SlumberdError):
    """Configuration or rule files have mistakes; the error lists all of them.

    Attributes:
        mistakes: Every mistake of every file, in file order, then by position. A missing extra is
            one mistake, at the first place that needs it.
        rules_dir: The directory of the rules, when the configuration has the mistakes.
    """

    exit_code = 78

    def __init__(self, mistakes: Sequence[Mistake], *, rules_dir: str | None = None) -> None:
        self.mistakes = _join_missing_extras(mistakes)
        self.rules_dir = rules_dir
        super().__init__("\n".join(str(mistake) for mistake in self.mistakes))


class ReloadFailedError(SlumberdError):
    """A running daemon cannot load the new rules, and keeps the old rules.

    Attributes:
        cause: What is wrong with the new rules.
    """

    exit_code = 1

    def __init__(self, cause: SlumberdError | OSError) -> None:
        self.cause = cause
        super().__init__(f"the daemon keeps its old rules:\n{cause}")


class StoreError(SlumberdError):
    """A store failed."""

    exit_code = 74


class InstantRangeError(StoreError):
    """A stored instant is before the year 1, or after the year 9999; slumberd never stores one.

    Attributes:
        microseconds: The instant, since 1970 UTC.
    """

    def __init__(self, microseconds: int) -> None:
        self.microseconds = microseconds
        super().__init__(
            f"a stored instant is {microseconds} microseconds, which no clock shows: the store is"
            " damaged; `slumberd doctor` says where"
        )


class DamagedStoreError(StoreError):
    """A store holds what slumberd never writes, so a command could not read it.

    Attributes:
        damage: What is wrong, and where.
    """

    def __init__(self, damage: str) -> None:
        self.damage = damage
        super().__init__(
            f"a store is damaged: {damage}; `slumberd doctor` and `slumberd audit verify` say more,"
            " `slumberd restore DIR` restores a backup"
        )


class RowRefusedError(StoreError):
    """A constraint or a trigger, of the table or of another program, refused a row."""


class LogRestoredError(StoreError):
    """A row of the episode log that a rule has read is not there any more.

    Attributes:
        where: The store of episodes.
        seq: The number of the row.
        episode_id: The episode that the row had.
    """

    def __init__(self, where: str, seq: int, episode_id: str) -> None:
        super().__init__(
            f"{where!r}: log row {seq} is not episode {episode_id!r} any more, so the episodes "
            "were restored from a backup; resume at an earlier position of the rule"
        )
        self.where = where
        self.seq = seq
        self.episode_id = episode_id


class SkippedEpisodesError(StoreError):
    """A batch begins after episodes that its rule has not read.

    Attributes:
        rule_id: The rule.
        position: The number of the last log row that the rule has read.
        after: The number of the log row after which the batch begins.
    """

    def __init__(self, rule_id: str, position: int, after: int) -> None:
        super().__init__(
            f"rule {rule_id!r} has read up to log row {position}, and the batch begins after row "
            f"{after}: the rule would never read the rows between; begin at its next window"
        )
        self.rule_id = rule_id
        self.position = position
        self.after = after


class MemoryScopeError(StoreError):
    """An episode, or a read, does not fit its scope.

    Attributes:
        scope: The scope, as ``(user, session, agent)``.
        operation: The refused call, for example ``put``.
        violation: What is wrong with it.
    """

    exit_code = 65

    def __init__(self, scope: tuple[str | None, ...], operation: str, violation: str) -> None:
        self.scope = scope
        self.operation = operation
        self.violation = violation
        super().__init__(f"{operation} in scope {tuple(scope)!r}: {violation}")


class ForgottenError(MemoryScopeError):
    """An episode is of a scope that was erased, and not newer than the erasure."""

    def __init__(self, scope: tuple[str | None, ...], episode_id: str) -> None:
        problem = f"episode {episode_id!r} is not newer than the erasure of its scope"
        super().__init__(scope, "put", problem)


class ConsolidationRuleError(StoreError, ValueError):
    """A rule or a delta is malformed.

    Attributes:
        rule_id: The rule; may be empty when that is the violation.
        delta_type: The kind of the delta, for example ``add``; empty for the rule itself.
        violation: What is wrong, for example ``source_episode_ids must be non-empty``.
    """

    exit_code = 78

    def __init__(self, rule_id: str, delta_type: str, violation: str) -> None:
        self.rule_id = rule_id
        self.delta_type = delta_type
        self.violation = violation
        subject = f"{delta_type} delta of rule {rule_id!r}" if delta_type else f"rule {rule_id!r}"
        super().__init__(f"{subject}: {violation}")


class FilterError(ConsolidationRuleError):
    """A ``when_filter`` is forbidden, does not compile, or exceeded its budget.

    Attributes:
        problem: What is wrong, without the place.
        position: The offset of the character, from 0; None for the whole filter.
        further: Further errors of the same filter.
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
    """Triples of a graph cannot be promoted, so none of them was.

    Attributes:
        row: The number of the row, from 1; 0 for all rows.
        problem: What is wrong, without the place.
    """

    exit_code = 65

    def __init__(self, rule_id: str, problem: str, *, row: int = 0) -> None:
        self.row = row
        self.problem = problem
        where = f"row {row} of the graph's answer: " if row else ""
        super().__init__(rule_id, "", f"{where}{problem}; nothing was promoted")


class FactConflictError(StoreError):
    """A fact id belongs to another user, agent or channel, or does not exist.

    Attributes:
        fact_id: The id.
        violation: What is wrong with it.
    """

    exit_code = 65

    def __init__(self, fact_id: str, violation: str) -> None:
        self.fact_id = fact_id
        self.violation = violation
        super().__init__(f"fact {fact_id!r}: {violation}")


class GraphStoreError(StoreError):
    """A graph cannot be opened, read or written.

    Attributes:
        where: Its file; ``:memory:`` for a graph in memory.
        problem: What is wrong.
    """

    def __init__(self, where: str, problem: str) -> None:
        self.where = where
        self.problem = problem
        super().__init__(f"graph {where!r}: {problem}")


class UnportableCypherError(StoreError):
    """A Cypher query differs between engines, or is forbidden here.

    Attributes:
        cypher: The query.
        violation: The same as `rule`; the specification has this name.
        rule: The rule that the query breaks, for example ``varlen-unbounded``.
        match: The part of the query that breaks the rule; empty for the whole query.
        problem: What is wrong and what to write instead, without the place.
        position: The offset of the character, from 0; None for the whole query.
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
    """A store is not one of slumberd, is damaged, or has another schema version.

    Attributes:
        where: The store.
        problem: What is wrong with it.
        remedy: What the operator can do; empty when the problem contains it, or when it is unknown.
    """

    def __init__(self, where: str, problem: str, remedy: str = "") -> None:
        self.where = where
        self.problem = problem
        self.remedy = remedy
        super().__init__(f"{where!r}: {problem}" + (f"; {remedy}" if remedy else ""))


class StageNotesError(StoreError):
    """The notes that stages keep of past episodes cannot be read.

    Attributes:
        where: The file of the notes.
        problem: What is wrong with it.
        is_deleted: Whether slumberd has deleted it.
    """

    def __init__(self, where: str, problem: str, *, is_deleted: bool = False) -> None:
        self.where = where
        self.problem = problem
        self.is_deleted = is_deleted
        done = "it was deleted" if is_deleted else "delete it"
        remedy = f"{done}: the next firing of each rule with stages makes it again"
        super().__init__(f"{where!r} {problem}; {remedy}")


class LedgerKeyError(StoreError):
    """The ledger was begun with another key than the given one, or without a key.

    Attributes:
        where: The store of the facts.
        problem: Which key is wrong, and what to do.
    """

    exit_code = 78

    def __init__(self, where: str, problem: str) -> None:
        self.where = where
        self.problem = problem
        super().__init__(f"{where!r}: {problem}")


class StoreBusyError(StoreError):
    """Another process held the lock of a database for longer than slumberd waits.

    Attributes:
        where: The store.
        waited_seconds: How long slumberd waited; None when a database refused the transaction at
            once, because it conflicts with another one.
    """

    exit_code = 75

    def __init__(self, where: str, waited_seconds: float | None) -> None:
        self.where = where
        self.waited_seconds = waited_seconds
        super().__init__(
            f"{where!r}: the work conflicts with another transaction, and was rolled back: "
            "try again"
            if waited_seconds is None
            else f"{where!r} is locked by another process (waited {waited_seconds:g} s): try again"
        )


class BackupBusyError(StoreError):
    """A backup cannot be made at this moment.

    Attributes:
        where: The store or directory that is busy.
        problem: What uses it, and what to do.
    """

    exit_code = 75

    def __init__(self, where: str, problem: str) -> None:
        self.where = where
        self.problem = problem
        super().__init__(f"{where!r} {problem}")


class StateDirectoryLockedError(StoreError):
    """Another slumberd works on this state directory."""

    exit_code = 75

    def __init__(self, path: str, holder: str) -> None:
        self.path = path
        self.holder = holder
        super().__init__(
            f"state directory {path!r} is in use by another slumberd ({holder}): programs reach "
            f"it as {'unix:' + path!r}; another daemon needs a state directory of its own"
        )


class DatabaseHeldError(StoreError):
    """Another slumberd holds this database.

    Attributes:
        where: The database.
        holder: The host and the process that hold it.
    """

    exit_code = 75

    def __init__(self, where: str, holder: str) -> None:
        self.where = where
        self.holder = holder
        super().__init__(
            f"{where!r} is held by another slumberd ({holder}): stop it, or wait until it ends"
        )


class UserMovingError(StoreError):
    """A user is being moved to another shard, and nothing of the user can be read or written.

    Attributes:
        user: The user.
        shard: The shard that the user leaves.
        target: The shard to which the user goes.
    """

    exit_code = 75

    def __init__(self, user: str, shard: int, target: int) -> None:
        self.user = user
        self.shard = shard
        self.target = target
        super().__init__(
            f"user {user!r} is being moved from shard {shard} to shard {target}: try again later"
        )


class DatabaseUnreachableError(StoreError):
    """The server of a database does not answer, or ends the connection.

    Attributes:
        where: The database.
        problem: What the driver or the server says.
    """

    exit_code = 69

    def __init__(self, where: str, problem: str) -> None:
        self.where = where
        self.problem = problem
        super().__init__(
            f"{where!r}: the server does not answer, or ended the connection: {problem}"
        )


class OldPrimaryError(StoreError):
    """A database server came back after another one was promoted in its place.

    Attributes:
        where: The database.
        timeline: The timeline of the server.
        newest: The timeline of the server that was promoted.
    """

    exit_code = 69

    def __init__(self, where: str, timeline: int, newest: int) -> None:
        self.where = where
        self.timeline = timeline
        self.newest = newest
        super().__init__(
            f"{where!r} is an old primary on timeline {timeline}, and another server has taken its "
            f"place on timeline {newest}: stop the old one, or make it a standby"
        )


class PoolerError(StoreError):
    """An address of a database leads to a connection pooler that divides sessions among clients.

    Attributes:
        where: The database.
    """

    exit_code = 78

    def __init__(self, where: str) -> None:
        self.where = where
        super().__init__(
            f"{where!r} is a connection pooler, such as PgBouncer, which gives a session to other "
            "clients after each transaction; give slumberd the address of the server itself, or of "
            "a pool with pool_mode = session"
        )


class UserElsewhereError(StoreError):
    """A shard does not have a user; nothing was done.

    Attributes:
        user: The user.
        where: The database of the shard.
    """

    exit_code = 75

    def __init__(self, user: str, where: str) -> None:
        self.user = user
        self.where = where
        super().__init__(
            f"{where!r}: another shard has user {user!r}; read the map of shards, and try again"
        )


class IdTakenInTargetError(StoreError):
    """A user cannot be moved: the target shard has some of the user's ids; nothing was moved.

    Attributes:
        user: The user.
        target: The shard that was to get the user.
        ids: Some of the ids.
    """

    exit_code = 65

    def __init__(self, user: str, target: int, ids: Sequence[str]) -> None:
        self.user = user
        self.target = target
        self.ids = ids
        named = ", ".join(map(repr, ids))
        super().__init__(
            f"user {user!r} was not moved: other users of shard {target} have these ids: {named}; "
            "move the user to another shard"
        )


class ShardSettingsDifferError(StoreError):
    """A user cannot be moved: two shards resolve claims under other settings; nothing was moved.

    Attributes:
        user: The user.
        source: The shard that has the user.
        target: The shard that was to get the user.
    """

    exit_code = 75

    def __init__(self, user: str, source: int, target: int) -> None:
        self.user = user
        self.source = source
        self.target = target
        super().__init__(
            f"user {user!r} was not moved: shards {source} and {target} have other channels, "
            "another law or another depth of lineage; reload the daemons of both, and try again"
        )


class ChangedRowsError(StoreError):
    """A user cannot be moved: another program changed rows of the ledger; nothing was moved.

    Attributes:
        where: The database.
        numbers: The numbers of some of the rows.
    """

    exit_code = 65

    def __init__(self, where: str, numbers: Sequence[int]) -> None:
        self.where = where
        self.numbers = numbers
        named = ", ".join(map(str, numbers))
        super().__init__(
            f"{where!r}: the content of ledger rows does not match their commitments: {named}; "
            "`slumberd audit verify` says more"
        )


class SourceChangedError(StoreError):
    """Programs put episodes while a store was copied.

    Attributes:
        where: The store.
        versions: How many versions of episodes the copy would lack.
    """

    exit_code = 75

    def __init__(self, where: str, versions: int) -> None:
        self.where = where
        self.versions = versions
        super().__init__(
            f"{where!r} got {versions} new versions of episodes while it was copied; nothing was "
            "kept: stop the programs that put, and copy again"
        )


class OtherRulesPublishedError(StoreError):
    """Other rules were published in a database than those that the publisher knows.

    Attributes:
        where: The database.
        expected: The version that the publisher expects to be the newest.
        newest: The newest version; 0 when nothing was published.
    """

    exit_code = 75

    def __init__(self, where: str, expected: int, newest: int) -> None:
        self.where = where
        self.expected = expected
        self.newest = newest
        super().__init__(
            f"{where!r}: the newest published rules are version {newest}, not {expected}; nothing "
            "was published: compare with `slumberd rules published --to DIR`, and publish again"
        )


class HostStoreError(StoreError):
    """A host's own store failed, or the factory in the configuration made no store.

    Attributes:
        where: The factory, as the configuration names it.
        problem: What failed.
    """

    def __init__(self, where: str, problem: str) -> None:
        self.where = where
        self.problem = problem
        super().__init__(f"host store {where!r}: {problem}")


class UnsupportedByStoreError(StoreError):
    """A command does not work on this kind of store.

    Attributes:
        where: The store.
        problem: What does not work there.
        remedy: What to use instead.
    """

    exit_code = 64

    def __init__(self, where: str, problem: str, remedy: str) -> None:
        self.where = where
        self.problem = problem
        self.remedy = remedy
        super().__init__(f"{where!r}: {problem}; {remedy}")


class SupersededError(StoreError):
    """The store that this process has open is no longer valid; nothing more is written to it."""

    exit_code = 75


class StoreReplacedError(SupersededError):
    """Another store, or another content, has the place of the store that was opened.

    Attributes:
        where: The store.
        problem: What is different.
    """

    def __init__(self, where: str, problem: str) -> None:
        self.where = where
        self.problem = problem
        super().__init__(f"{where!r} {problem}; nothing written: open it anew")


class TailLostError(StoreReplacedError):
    """A database lacks the last rows of a ledger that this process wrote.

    It was restored from a backup, or a standby without the last commits took over.

    Attributes:
        where: The database.
        written: The number of the last row that this process wrote or read.
        last: The number of the last row that the database has.
    """

    def __init__(self, where: str, written: int, last: int) -> None:
        self.written = written
        self.last = last
        super().__init__(
            where,
            f"has not ledger row {written} as it was written (its last row is {last}): it was "
            "restored, or a standby without the last commits took over",
        )


class StaleWriterError(SupersededError):
    """Another daemon has taken over the fact store since this one started.

    Attributes:
        where: The store.
        ours: The epoch of this writer.
        current: The epoch of the newest writer.
    """

    def __init__(self, where: str, ours: int, current: int) -> None:
        self.where = where
        self.ours = ours
        self.current = current
        super().__init__(
            f"{where!r} has a newer writer: epoch {current}, ours was {ours}; nothing written"
        )


class LeaseLostError(SupersededError):
    """Another slumberd has taken the lease of the database, or somebody has ended it.

    Attributes:
        where: The database.
        holder: The host and the process that hold it now; empty when nobody does.
    """

    def __init__(self, where: str, holder: str) -> None:
        self.where = where
        self.holder = holder
        now = f"{holder} holds it now" if holder else "nobody holds it now"
        super().__init__(f"{where!r}: the lease of this process ended; {now}")


class StoppedError(StoreError):
    """Work on a store was stopped and rolled back."""

    exit_code = 75


class StoreClosedError(StoreError):
    """A store was used after it was closed.

    Attributes:
        where: The store.
        remedy: What to do.
    """

    def __init__(self, where: str, remedy: str = "open a new store") -> None:
        self.where = where
        self.remedy = remedy
        super().__init__(f"{where!r} is closed: {remedy}")


class FiringTimeoutError(StoreError):
    """A firing exceeded the timeout of its rule; its last batch was rolled back."""

    exit_code = 75

    def __init__(self, rule_id: str, seconds: float) -> None:
        self.rule_id = rule_id
        self.seconds = seconds
        super().__init__(
            f"rule {rule_id!r} fired for more than its timeout of {seconds:g} s; its last batch was"
            " rolled back, and the next firing continues after the last committed batch"
        )


class NotAllowedError(SlumberdError):
    """A caller has no right to an operation, or to a scope.

    Attributes:
        caller: Who called, such as ``token laptop``.
        problem: What the caller may not do.
    """

    exit_code = 77

    def __init__(self, caller: str, problem: str) -> None:
        self.caller = caller
        self.problem = problem
        super().__init__(f"{caller} {problem}")


class UnknownHostError(SlumberdError):
    """A request names a host that an interface does not serve.

    Attributes:
        host: The header ``Host`` of the request; empty without one.
    """

    exit_code = 77

    def __init__(self, host: str) -> None:
        self.host = host
        super().__init__(
            f"the host {host!r} is not served; if it is a name of this daemon, or of a proxy"
            " before it, list it in `serve.hosts`"
        )


class VersionConflictError(SlumberdError):
    """What a request wants to change is not what its author saw.

    Attributes:
        what: What has changed, such as the id of a fact.
        remedy: What to do.
    """

    exit_code = 75

    def __init__(self, what: str, remedy: str = "read it again, and decide again") -> None:
        self.what = what
        self.remedy = remedy
        super().__init__(f"{what} has changed since; {remedy}")


class PermissionDeniedError(StoreError):
    """The operating system, or the engine of a store, denies access.

    Attributes:
        where: The store, file or directory.
        action: The refused access, for example ``write to``.
    """

    exit_code = 77

    def __init__(self, where: str, action: str) -> None:
        self.where = where
        self.action = action
        super().__init__(f"{where!r}: no permission to {action} it; check owner and mode")


class NotAuthenticatedError(SlumberdError):
    """A request over a network names no known token.

    Attributes:
        problem: What is wrong with it.
    """

    exit_code = 77

    def __init__(self, problem: str) -> None:
        self.problem = problem
        super().__init__(f"{problem}; send a token as `Authorization: Bearer TOKEN`")


class RequestTooLargeError(SlumberdError):
    """A request is larger than an interface takes.

    Attributes:
        most_bytes: The limit.
        given_bytes: How large the request is; None when nobody has read it to its end.
        option: The option that sets the limit; empty when it is fixed.
    """

    exit_code = 65

    def __init__(self, most_bytes: int, given_bytes: int | None = None, option: str = "") -> None:
        self.most_bytes = most_bytes
        self.given_bytes = given_bytes
        self.option = option
        size = f"more than {most_bytes:,} bytes"
        if given_bytes is not None:
            size = f"{given_bytes:,} bytes, at most {most_bytes:,}"
        remedy = f"send less, or raise `{option}`" if option else "send less"
        super().__init__(f"the request is too large: {size}; {remedy}")


class TooManyRequestsError(SlumberdError):
    """An interface answers as many requests as it may.

    Attributes:
        most: The limit.
        whose: Whose requests are too many.
    """

    exit_code = 75

    def __init__(self, most: int, whose: str) -> None:
        self.most = most
        self.whose = whose
        super().__init__(f"{whose} has {most} requests under way already; try again")


class RequestTimeoutError(SlumberdError):
    """An operation that only reads took longer than an interface waits; it is cancelled.

    Attributes:
        operation: Its name.
        seconds: The limit.
    """

    exit_code = 75

    def __init__(self, operation: str, seconds: float) -> None:
        self.operation = operation
        self.seconds = seconds
        super().__init__(f"{operation!r} took more than {seconds:g} s; ask for less, or try again")


class ListenError(SlumberdError):
    """An interface cannot listen on its socket.

    Attributes:
        where: The path or the address.
        reason: Why, in the words of the operating system.
    """

    exit_code = 69

    def __init__(self, where: str, reason: str) -> None:
        self.where = where
        self.reason = reason
        super().__init__(f"cannot listen on {where!r}: {reason}; name another one in 'serve'")
