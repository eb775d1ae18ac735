"""All operations: what every interface offers."""

from __future__ import annotations

from slumberd.operations.changes import Operations
from slumberd.operations.corrections import Corrections
from slumberd.operations.daemon import DaemonOperations
from slumberd.operations.episodes import EpisodeReads
from slumberd.operations.facts import FactReads
from slumberd.operations.forms import RequestForm
from slumberd.operations.handlers import Operation, operations_of
from slumberd.operations.ledger import HeldReads, LedgerReads
from slumberd.operations.outcomes import Outcomes
from slumberd.operations.pauses import Pausing
from slumberd.operations.puts import EpisodePuts
from slumberd.operations.quarantine import QuarantineReads
from slumberd.operations.report import Reports
from slumberd.operations.rules import CadenceReads, RuleReads
from slumberd.operations.search import Search
from slumberd.operations.users import UserMoving, Users
from slumberd.operations.writes.erasures import Erasures

_KINDS = (
    EpisodePuts,
    EpisodeReads,
    Search,
    FactReads,
    Corrections,
    Outcomes,
    LedgerReads,
    HeldReads,
    Reports,
    Erasures,
    QuarantineReads,
    Users,
    RuleReads,
    CadenceReads,
    Operations,
    UserMoving,
    Pausing,
    DaemonOperations,
)

_ORDER = (
    "remember", "transcript", "put_many", "recall", "context", "episodes", "facts", "correct",
    "explain", "history", "outcome", "changes", "firings", "deltas", "profile", "report",
    "forget", "held", "quarantined", "users", "rules", "rule", "decide", "fire", "undo",
    "pin", "unpin", "backfill", "retry", "drop", "withdraw_future", "accept_clock",
    "extract", "move", "pause", "resume", "status", "shards", "next", "reload", "outdated",
)  # fmt: skip
"""The order in which pages and documents list the operations; others come last."""


def _declared() -> dict[str, Operation[RequestForm]]:
    found = {name: one for kind in _KINDS for name, one in operations_of(kind).items()}
    return {name: found[name] for name in [*_ORDER, *(one for one in found if one not in _ORDER)]}


OPERATIONS = _declared()
"""All operations, by name."""
