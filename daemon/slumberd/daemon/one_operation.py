"""Run one operation of the daemon in this process, while no daemon runs."""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from typing import Any

from slumberd.clock import Clock
from slumberd.consolidation.protocols import Logs
from slumberd.daemon.background import ReductionAlarm
from slumberd.daemon.composition import (
    moves_of,
    open_for_dry_run,
    open_for_writing,
    retention_of,
    rule_runner_of,
)
from slumberd.daemon.control_socket import encode_request
from slumberd.daemon.language_model import answer_recorder, model_worker_of
from slumberd.daemon.reload import apply_channels
from slumberd.daemon.rules import paused_rules_of, rules_of
from slumberd.daemon.stage_notes import stage_notes_of
from slumberd.daemon.stores import erase_files_of
from slumberd.operations.caller import Caller
from slumberd.operations.changes import Operations
from slumberd.operations.handlers import Answer, for_forwarded, handlers_of
from slumberd.operations.pauses import Pausing
from slumberd.operations.users import UserMoving
from slumberd.rules.settings import Settings


async def run_operation(
    settings: Settings,
    operation: str,
    request: dict[str, Any],
    *,
    clock: Clock,
    logs: Logs,
) -> Answer:
    """Run an operation of the control socket in this process, under the daemon's lock.

    Args:
        request: Its request; with ``dry_run`` nothing is written.
        logs: The log of deltas.

    Raises:
        RequestTooLargeError: The daemon would not take so much either.
        StateDirectoryLockedError: A daemon runs on the state directory.
    """
    encode_request(operation, request)
    rules = rules_of(settings)
    dry_run = bool(request.get("dry_run"))
    async with (
        open_for_dry_run(settings, clock)
        if dry_run
        else open_for_writing(settings, clock) as stores,
        answer_recorder(settings, stores, clock) as recorder,
        stage_notes_of(settings, dry_run=dry_run) as notes,
    ):
        runner = rule_runner_of(settings, stores, logs, clock)
        runner.consolidator.note_stages_in(notes)
        runner.consolidator.retention = retention_of(settings, lambda: rules)
        if not dry_run:
            await runner.consolidator.log_pending_records()
            await apply_channels(runner, rules, clock.now())
        operations = Operations(stores, runner, lambda: rules, clock)
        operations.erasures.erased = partial(erase_files_of, settings)
        operations.worker = model_worker_of(
            stores, recorder, rules=lambda: rules.rules, clock=clock
        )
        if not dry_run:
            await operations.erasures.share()
        fraction = settings.limits.alarm_fraction
        reads = stores.facts.reads
        alarm = ReductionAlarm(reads, lambda: fraction, clock, rows=await reads.ledger_rows())
        pausing = Pausing(paused_rules_of(settings), lambda: rules)
        moves = moves_of(settings, stores)
        left = partial(runner.consolidator.erase_notes, eids=())
        moving = UserMoving(moves, operations.turn, clock, str(settings.state_dir), left)
        known = operations.handlers | handlers_of(pausing, moving)
        answer = await for_forwarded(known[operation])(request, Caller.here())
        if not dry_run:
            with suppress(OSError):  # the change is committed, and its answer must not be lost
                await alarm.check()
                await runner.consolidator.checkpoint()
        return answer
