"""The table of operations: what every interface offers, and what it promises of each.

The control socket, HTTP, the Model Context Protocol and the reference pages are made from it.
"""

from __future__ import annotations

from slumberd.errors import (
    ConfigurationError,
    ForgottenError,
    FutureInstantError,
    IdTakenInTargetError,
    InputError,
    KeyReusedError,
    MemoryScopeError,
    NoInputError,
    NothingKeptError,
    NotQuarantinedError,
    RecordRefusedError,
    ReloadFailedError,
    SecretRefusedError,
    StoreError,
    UnreadableEpisodeError,
    VersionConflictError,
)
from slumberd.operations import change_results as results
from slumberd.operations import firing_forms as firings
from slumberd.operations import forms
from slumberd.operations import history_forms as history
from slumberd.operations import memory_forms as memory
from slumberd.operations import operator_forms as operator
from slumberd.operations import overview_forms as overview
from slumberd.operations.caller import Right
from slumberd.operations.examples import example_of
from slumberd.operations.operation import Operation

REMEMBER = Operation(
    name="remember",
    summary="Put an episode; it is on disk when the answer comes.",
    form=memory.RememberForm,
    result=memory.Remembered,
    right=Right.WRITE,
    idempotent=True,
    errors=(
        ForgottenError,
        FutureInstantError,
        InputError,
        KeyReusedError,
        MemoryScopeError,
        SecretRefusedError,
        UnreadableEpisodeError,
    ),
    example=example_of("remember"),
)
TRANSCRIPT = Operation(
    name="transcript",
    summary="Put a turn of a coding agent's transcript, and record how the transcript was read.",
    form=memory.TranscriptForm,
    result=memory.TranscriptRead,
    right=Right.WRITE,
    idempotent=True,
    errors=(
        ForgottenError,
        InputError,
        MemoryScopeError,
        SecretRefusedError,
        UnreadableEpisodeError,
    ),
    example=example_of("transcript"),
)
PUT_MANY = Operation(
    name="put_many",
    summary="Put at most 10,000 episodes in one transaction, all or none.",
    form=memory.PutManyForm,
    result=memory.RememberedList,
    right=Right.WRITE,
    idempotent=True,
    errors=(MemoryScopeError, RecordRefusedError),
    example=example_of("put_many"),
)
RECALL = Operation(
    name="recall",
    summary="Find the episodes and facts that answer a question, best first.",
    form=memory.RecallForm,
    result=memory.Hits,
    right=Right.READ,
    read_only=True,
    idempotent=True,
    errors=(MemoryScopeError,),
    example=example_of("recall"),
)
CONTEXT = Operation(
    name="context",
    summary="Return what an agent takes with it to answer a question, quoted as data.",
    form=memory.ContextForm,
    result=memory.ContextText,
    right=Right.READ,
    read_only=True,
    idempotent=True,
    errors=(MemoryScopeError,),
    example=example_of("context"),
)
EPISODES = Operation(
    name="episodes",
    summary="Return the latest episodes, newest first.",
    form=memory.EpisodesForm,
    result=memory.EpisodeList,
    right=Right.READ,
    read_only=True,
    idempotent=True,
    errors=(MemoryScopeError,),
    example=example_of("episodes"),
)
FACTS = Operation(
    name="facts",
    summary="Return a page of current facts, by id.",
    form=memory.FactsForm,
    result=memory.FactPage,
    right=Right.READ,
    read_only=True,
    idempotent=True,
    errors=(MemoryScopeError,),
    example=example_of("facts"),
)
CORRECT = Operation(
    name="correct",
    summary="Assert the right value of a fact, or retract the fact.",
    form=memory.CorrectForm,
    result=memory.Correction,
    right=Right.WRITE,
    errors=(MemoryScopeError, NoInputError, VersionConflictError),
    example=example_of("correct"),
)
EXPLAIN = Operation(
    name="explain",
    summary="Explain why a fact is current, or what became of an episode.",
    form=memory.ExplainForm,
    result=memory.Explained,
    right=Right.READ,
    read_only=True,
    idempotent=True,
    errors=(MemoryScopeError, NoInputError),
    example=example_of("explain"),
)
HISTORY = Operation(
    name="history",
    summary="Return which facts of the same subject and predicate were current, and when.",
    form=history.HistoryForm,
    result=history.FactHistory,
    right=Right.READ,
    read_only=True,
    idempotent=True,
    errors=(MemoryScopeError, NoInputError),
    example=example_of("history"),
)
OUTCOME = Operation(
    name="outcome",
    summary="Wait until every enabled rule has evaluated an episode; return what became of it.",
    form=memory.OutcomeForm,
    result=memory.Outcome,
    right=Right.READ,
    read_only=True,
    idempotent=True,
    errors=(MemoryScopeError, NoInputError),
    example=example_of("outcome"),
)
CHANGES = Operation(
    name="changes",
    summary="Return rows of the ledger after a number; wait for one when there is none.",
    form=memory.ChangesForm,
    result=memory.ChangePage,
    right=Right.READ,
    read_only=True,
    idempotent=True,
    errors=(MemoryScopeError,),
    example=example_of("changes"),
)
FIRINGS = Operation(
    name="firings",
    summary="Return a page of firings, newest first, with what each did and what undid it.",
    form=firings.FiringsForm,
    result=firings.FiringPage,
    right=Right.OPERATE,
    read_only=True,
    idempotent=True,
    example=example_of("firings"),
)
DELTAS = Operation(
    name="deltas",
    summary="Return the rows of the ledger that one firing wrote.",
    form=firings.DeltasForm,
    result=memory.ChangePage,
    right=Right.READ,
    read_only=True,
    idempotent=True,
    errors=(MemoryScopeError, NoInputError),
    example=example_of("deltas"),
)
PROFILE = Operation(
    name="profile",
    summary="Return the facts that an agent takes with it whatever it is asked, quoted as data.",
    form=overview.ProfileForm,
    result=memory.ContextText,
    right=Right.READ,
    read_only=True,
    idempotent=True,
    errors=(MemoryScopeError,),
    example=example_of("profile"),
)
REPORT = Operation(
    name="report",
    summary="Return how much was learned, changed and forgotten in the last days.",
    form=overview.ReportForm,
    result=overview.ScopeReport,
    right=Right.READ,
    read_only=True,
    idempotent=True,
    errors=(MemoryScopeError,),
    example=example_of("report"),
)
FORGET = Operation(
    name="forget",
    summary="Plan the erasure of a scope, an episode or a fact; with the plan's hash, erase it.",
    form=forms.ForgetForm,
    result=results.Forgotten,
    right=Right.ERASE,
    errors=(MemoryScopeError, NothingKeptError, VersionConflictError),
    example=example_of("forget"),
)
HELD = Operation(
    name="held",
    summary="Return the batches that await approval.",
    form=memory.HeldForm,
    result=memory.HeldList,
    right=Right.OPERATE,
    read_only=True,
    idempotent=True,
    example=example_of("held"),
)
QUARANTINED = Operation(
    name="quarantined",
    summary="Return a page of the episodes that rules could not read, and why.",
    form=operator.QuarantinedForm,
    result=operator.QuarantinePage,
    right=Right.OPERATE,
    read_only=True,
    idempotent=True,
    example=example_of("quarantined"),
)
USERS = Operation(
    name="users",
    summary="Return a page of the users who have current facts, by name.",
    form=operator.UsersForm,
    result=operator.UserPage,
    right=Right.OPERATE,
    read_only=True,
    idempotent=True,
    example=example_of("users"),
)
RULES = Operation(
    name="rules",
    summary="Return how far each rule has read, and when it fires next.",
    form=operator.LoadedRulesForm,
    result=operator.LoadedRules,
    right=Right.OPERATE,
    read_only=True,
    idempotent=True,
    example=example_of("rules"),
)
DECIDE = Operation(
    name="decide",
    summary="Approve or reject a batch that awaits approval.",
    form=forms.DecideForm,
    result=results.Fired,
    right=Right.OPERATE,
    example=example_of("decide"),
)
FIRE = Operation(
    name="fire",
    summary="Fire the named rules, or every enabled rule.",
    form=forms.FireForm,
    result=results.Fired,
    right=Right.OPERATE,
    example=example_of("fire"),
)
UNDO = Operation(
    name="undo",
    summary="Undo one firing, the firings of a run, or those of a rule since an instant.",
    form=forms.UndoForm,
    result=results.Undone,
    right=Right.OPERATE,
    example=example_of("undo"),
)
PIN = Operation(
    name="pin",
    summary="Assert a fact as a person, for any user.",
    form=forms.PinForm,
    result=results.Pinned,
    right=Right.OPERATE,
    errors=(MemoryScopeError,),
    example=example_of("pin"),
)
UNPIN = Operation(
    name="unpin",
    summary="Retract facts as a person, of any user.",
    form=forms.UnpinForm,
    result=results.Unpinned,
    right=Right.OPERATE,
    idempotent=True,
    errors=(NoInputError,),
    example=example_of("unpin"),
)
BACKFILL = Operation(
    name="backfill",
    summary="Make the facts of a period equal to what a rule would promote now.",
    form=forms.BackfillForm,
    result=results.Fired,
    right=Right.OPERATE,
    idempotent=True,
    example=example_of("backfill"),
)
RETRY = Operation(
    name="retry",
    summary="Evaluate quarantined episodes again.",
    form=forms.QuarantineForm,
    result=results.Retried,
    right=Right.OPERATE,
    idempotent=True,
    example=example_of("retry"),
)
DROP = Operation(
    name="drop",
    summary="Remove episodes from the quarantine.",
    form=forms.DropForm,
    result=results.Dropped,
    right=Right.OPERATE,
    errors=(NotQuarantinedError,),
    example=example_of("drop"),
)
ACCEPT_CLOCK = Operation(
    name="accept_clock",
    summary="Record that the clock is right, after a wrong clock recorded later instants.",
    form=forms.AcceptClockForm,
    result=results.AcceptedClock,
    right=Right.OPERATE,
    idempotent=True,
    example=example_of("accept_clock"),
)
WITHDRAW_FUTURE = Operation(
    name="withdraw_future",
    summary="Withdraw claims whose instant is still to come into the quarantine, until it comes.",
    form=forms.WithdrawFutureForm,
    result=results.WithdrawnFuture,
    right=Right.OPERATE,
    idempotent=True,
    example=example_of("withdraw_future"),
)
EXTRACT = Operation(
    name="extract",
    summary="Ask the language model of a rule about all its episodes that have no answer.",
    form=forms.ExtractForm,
    result=results.Extracted,
    right=Right.OPERATE,
    idempotent=True,
    example=example_of("extract"),
)
MOVE = Operation(
    name="move",
    summary="Move a user to another shard, with all episodes, facts and rows of the ledger.",
    form=forms.MoveForm,
    result=results.MovedUser,
    right=Right.OPERATE,
    idempotent=True,
    errors=(IdTakenInTargetError, MemoryScopeError, StoreError),
    example=example_of("move"),
)
PAUSE = Operation(
    name="pause",
    summary="Pause rules; a firing that is running continues to its end.",
    form=forms.RulesForm,
    result=results.PausedRules,
    right=Right.OPERATE,
    idempotent=True,
    errors=(StoreError,),
    example=example_of("pause"),
)
RESUME = Operation(
    name="resume",
    summary="Resume rules; they catch up on what they missed.",
    form=forms.RulesForm,
    result=results.PausedRules,
    right=Right.OPERATE,
    idempotent=True,
    errors=(StoreError,),
    example=example_of("resume"),
)
STATUS = Operation(
    name="status",
    summary="Return how long the daemon runs, with which rules, and which of them fail.",
    form=forms.OperatorForm,
    result=results.DaemonStatus,
    right=Right.OPERATE,
    read_only=True,
    idempotent=True,
    example=example_of("status"),
)
SHARDS = Operation(
    name="shards",
    summary="Count what each shard of a database holds, and what waits there.",
    form=forms.RequestForm,
    result=operator.ShardList,
    right=Right.OPERATE,
    read_only=True,
    idempotent=True,
    example=example_of("shards"),
)
NEXT = Operation(
    name="next",
    summary="Return the cadence of each rule, and who paused it.",
    form=forms.OperatorForm,
    result=results.Cadences,
    right=Right.OPERATE,
    read_only=True,
    idempotent=True,
    example=example_of("next"),
)
RELOAD = Operation(
    name="reload",
    summary="Read the configuration and the rules again, or change nothing.",
    form=forms.OperatorForm,
    result=results.Reloaded,
    right=Right.OPERATE,
    idempotent=True,
    errors=(ReloadFailedError,),
    example=example_of("reload"),
)
OUTDATED = Operation(
    name="outdated",
    summary="Return the keys of the configuration that changed since the daemon read it.",
    form=forms.OperatorForm,
    result=results.Outdated,
    right=Right.OPERATE,
    read_only=True,
    idempotent=True,
    errors=(ConfigurationError,),
    example=example_of("outdated"),
)

OPERATIONS: dict[str, Operation[forms.RequestForm]] = {
    operation.name: operation
    for operation in (
        REMEMBER,
        TRANSCRIPT,
        PUT_MANY,
        RECALL,
        CONTEXT,
        EPISODES,
        FACTS,
        CORRECT,
        EXPLAIN,
        HISTORY,
        OUTCOME,
        CHANGES,
        FIRINGS,
        DELTAS,
        PROFILE,
        REPORT,
        FORGET,
        HELD,
        QUARANTINED,
        USERS,
        RULES,
        DECIDE,
        FIRE,
        UNDO,
        PIN,
        UNPIN,
        BACKFILL,
        RETRY,
        DROP,
        WITHDRAW_FUTURE,
        ACCEPT_CLOCK,
        EXTRACT,
        MOVE,
        PAUSE,
        RESUME,
        STATUS,
        SHARDS,
        NEXT,
        RELOAD,
        OUTDATED,
    )
}
"""All operations, by name."""
