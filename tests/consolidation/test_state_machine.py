"""After any sequence of events, crashes included, the facts equal those of the oracle."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test

from slumberd.consolidation.incoming import DeltaBatch
from slumberd.consolidation.precedence import Evaluation, History
from slumberd.storage.sqlite.fact_store import SQLiteFactStore
from tests.consolidation.test_precedence_by_oracle import DEPTH, AdvancingClock
from tests.support.sample_sizes import amount
from tests.support.state_machine import Machine

pytestmark = pytest.mark.integration

LONG = settings.get_current_profile_name() == "long"
EXAMPLES = settings.get_profile("long").max_examples if LONG else amount(5, full=30)
STEPS = 50 if LONG else 25
MOST_EXAMPLES = 1_000


def run(machine: type[Machine], examples: int, *phases: Phase) -> None:
    """Run a state machine on a number of examples."""
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=examples,
            stateful_step_count=STEPS,
            deadline=None,
            database=None,
            print_blob=False,
            phases=phases or tuple(Phase),
            report_multiple_bugs=False,
            suppress_health_check=list(HealthCheck),
        ),
    )


@pytest.mark.sampled
def test_facts_equal_the_oracle_after_every_event() -> None:
    run(Machine, EXAMPLES)


class EarlyWatermarkStore(SQLiteFactStore):
    """A store that moves the watermark first, in a separate transaction."""

    async def apply_deltas(self, batch: Any, **more: Any) -> Any:
        if isinstance(batch, DeltaBatch) and not more.get("dry_run"):
            end = {"rule": batch.firing.rule_id, **batch.upto._asdict(), "served": 0}
            await self.transactions.write(lambda session: session.do("ledger.set_watermark", end))
        return await super().apply_deltas(batch, **more)


class EarlyWatermarkMachine(Machine):
    """The state machine on that store."""

    def _facts(self, folder: Path) -> SQLiteFactStore:
        return EarlyWatermarkStore(
            folder / "facts.db", lineage_depth=DEPTH, clock=AdvancingClock(), synchronous="normal"
        )


@pytest.mark.nightly
def test_the_machine_detects_a_watermark_that_moves_before_the_facts() -> None:
    with pytest.raises(AssertionError):
        run(EarlyWatermarkMachine, MOST_EXAMPLES, Phase.generate)


@pytest.mark.nightly
def test_the_machine_detects_an_undo_that_withdraws_later_evaluations(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def remaining_before_first_undo(history: History) -> list[Evaluation]:
        earliest = min((undo.firing for undo in history.undone), default=10**9)
        return [found for found in history.evaluations if found.firing < earliest]

    monkeypatch.setattr(History, "remaining", remaining_before_first_undo)

    with pytest.raises(AssertionError):
        run(Machine, MOST_EXAMPLES, Phase.generate)
