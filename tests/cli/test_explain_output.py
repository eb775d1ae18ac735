"""Single words and lines that commands print."""

from __future__ import annotations

from contextlib import redirect_stdout, suppress
from pathlib import Path
from typing import Any

import pytest

from slumberd.cli import call
from slumberd.cli.registry import examples
from slumberd.consolidation.explanation import (
    Decision,
    DetailedRecord,
    EpisodeOutcome,
    NewerClaim,
)
from slumberd.consolidation.incoming import UNSAID
from slumberd.model.episode import microseconds
from slumberd.model.errors import ConfigurationError, FilterError
from slumberd.model.firing import HeldBatch, Kind, Record
from slumberd.operations.reads.explanations import (
    describe_extraction,
    describe_removal,
    would_change,
)
from slumberd.rules.filters.sandbox import check_filter
from slumberd.rules.settings import load_settings
from tests.support.asked_models import asking
from tests.support.builders import START, at, rule

pytestmark = pytest.mark.unit


def row(
    kind: Kind = "update",
    event: str = "claim",
    reason: str = "",
    fact_id: str = "e2",
    rule_id: str = "r",
    by: str = "",
    undoes: str = "",
) -> DetailedRecord:
    """Return the row of an episode ``e2`` that replaced another fact."""
    record = Record(5, "r@4", rule_id, kind, fact_id, ("e1",), (), reason, 1.0, START)
    return DetailedRecord(
        record,
        first=5,
        event=event,
        log_number=2,
        key_id=2,
        claimed_at=0,
        document={},
        rule_hash="",
        trigger="manual",
        by=by,
        undoes=undoes,
    )


@pytest.mark.parametrize(
    ("payload", "content", "words"),
    [
        pytest.param({"content": "Hi"}, True, "", id="stated by a program"),
        pytest.param({"extracted": "x"}, True, "", id="in a form of another program"),
        pytest.param(
            {"extracted": {"by": "home", "span": [4, 18]}, "content": "Hi. I live in Oslo."},
            False,
            "home, in characters 4 to 18 of the text",
            id="without the words",
        ),
        pytest.param(
            {"extracted": {"by": "home", "span": [4, 18]}, "content": "Hi. I live in Oslo."},
            True,
            "home, in characters 4 to 18 of the text: I live in Oslo",
            id="with the words",
        ),
    ],
)
def test_description_of_an_extraction_names_the_pattern_and_the_place(
    payload: dict[str, Any], content: bool, words: str
) -> None:
    assert describe_extraction(payload, content=content) == words


@pytest.mark.parametrize(
    ("removal", "words"),
    [
        pytest.param(row(), "e2 replaced it", id="an episode"),
        pytest.param(row(by="uid 7"), "e2 replaced it", id="an episode, fired on request"),
        pytest.param(row(kind="delete"), "e2 retracted it", id="a delete"),
        pytest.param(row(kind="delete", by="uid 7"), "e2 retracted it", id="a delete on request"),
        pytest.param(
            row(kind="delete", rule_id="@manual", by="uid 7"),
            "a person retracted it (uid 7)",
            id="a person",
        ),
        pytest.param(
            row(kind="delete", rule_id="@external"), "another program retracted it", id="a program"
        ),
        pytest.param(
            row(kind="delete", rule_id="@graph/g"),
            "the graph rule g retracted it",
            id="a graph rule",
        ),
        pytest.param(
            row(rule_id="@manual", by="uid 7"),
            "e2 replaced it: a person pinned it (uid 7)",
            id="a pin",
        ),
        pytest.param(
            row(fact_id="e1", event="withdrawal"),
            "r no longer selects its episode",
            id="a filter",
        ),
        pytest.param(
            row(fact_id="e1", event="quarantine", reason="intent_unknown"),
            "a newer version of its episode cannot be read (intent_unknown)",
            id="an edit that cannot be read",
        ),
        pytest.param(
            row(fact_id="e1"), "a newer version of its episode does not assert it", id="an edit"
        ),
        pytest.param(row(fact_id="e1", undoes="r@1"), "r@1 was undone", id="its undoing"),
        pytest.param(
            row(undoes="r@1"),
            "e2 is current again since r@1 was undone",
            id="the undoing of another",
        ),
    ],
)
def test_description_of_a_removal_names_who_removed_the_fact(
    removal: DetailedRecord, words: str
) -> None:
    assert describe_removal(removal, "e1") == words


LATER = "say it again with a later timestamp"
TEA = rule("r", when_filter="object = 'tea'")
HELD = HeldBatch("r", "r@9", (9, "e9"), "too many", approved=False)
NO_LONGER = {"detail": UNSAID}
SCORED = {"salience": 0.019, "min": 0.1}
FUTURE = NewerClaim("e9", microseconds(at(60)))


def decided(outcome: EpisodeOutcome, **known: Any) -> Decision:
    return Decision("r", "facts", "e2", outcome, **known)


@pytest.mark.parametrize(
    ("decision", "context", "remedy"),
    [
        pytest.param(decided("pending"), {}, "`slumberd fire r`", id="pending"),
        pytest.param(
            decided("pending"),
            {"rule": rule("r", enabled=False)},
            "r is disabled, but: `slumberd fire r`",
            id="pending for a disabled rule",
        ),
        pytest.param(
            decided("pending"),
            {"held": HELD},
            "r awaits approval: too many; `slumberd approve r@9` applies it",
            id="awaits approval",
        ),
        pytest.param(
            decided("pending"),
            {"held": HELD._replace(approved=True)},
            "`slumberd fire r`",
            id="approved",
        ),
        pytest.param(
            decided("pending", unrecorded=True),
            {},
            "it waits for the answer of the language model; `slumberd extract r` asks now",
            id="waits for an answer",
        ),
        pytest.param(
            decided("pending", unrecorded=True),
            {"rule": rule("r", enabled=False)},
            "r is disabled, but: it waits for the answer of the language model;"
            " `slumberd extract r` asks now",
            id="waits for an answer under a disabled rule",
        ),
        pytest.param(
            decided("pending", unrecorded=True),
            {"held": HELD},
            "r awaits approval: too many; `slumberd approve r@9` applies it",
            id="waits for an answer and for approval",
        ),
        pytest.param(
            decided("quarantined", row=row("quarantine", reason="answer_invalid")),
            {},
            "`slumberd extract r --again` asks again, then `slumberd quarantine retry e2`;"
            " or repair the episode or the rule",
            id="answer that is invalid",
        ),
        pytest.param(
            decided("noop", row=row("noop", reason="nothing_said")),
            {},
            "the rule finds no triple in it; put it with a triple, or add a pattern",
            id="text without a triple",
        ),
        pytest.param(
            decided("noop", row=row("noop", reason="nothing_said")),
            {"rule": asking(id="r")},
            "the language model finds no triple in it that counts; put it with a triple, or change"
            " the prompt",
            id="answer without a triple",
        ),
        pytest.param(
            decided("filtered"),
            {},
            "the filter of r does not select it: object = 'tea'",
            id="filtered",
        ),
        pytest.param(
            decided("filtered"),
            {"rule": None},
            "r is no longer loaded; its filter did not select the episode",
            id="filtered by a removed rule",
        ),
        pytest.param(
            decided("erased"),
            {},
            "its scope was erased; only episodes that are newer than the erasure count",
            id="erased",
        ),
        pytest.param(
            decided("skipped"),
            {},
            "r has no row about it (the rule began later or was edited since, or the row was"
            " erased or dropped): `slumberd backfill r`",
            id="skipped",
        ),
        pytest.param(
            decided("skipped"),
            {"in_memory": False},
            "r never evaluated it, and it is no longer among the episodes; put it again",
            id="skipped and gone",
        ),
        pytest.param(decided("undone"), {}, "`slumberd backfill r`", id="undone"),
        pytest.param(
            decided("quarantined", row=row("quarantine", reason="intent_unknown")),
            {},
            "repair the episode; or repair the rule or the settings, then"
            " `slumberd quarantine retry e2`",
            id="quarantined",
        ),
        pytest.param(
            decided("quarantined", row=row("quarantine", reason="id_taken")),
            {},
            "another user, agent or channel holds its id; put it under one of its own",
            id="id that is taken",
        ),
        pytest.param(
            decided("add", is_current=True),
            {},
            "nothing needs to change: its fact is current",
            id="current",
        ),
        pytest.param(
            decided("delete", row=row("delete")),
            {},
            "nothing needs to change: it deleted e1",
            id="delete",
        ),
        pytest.param(
            decided("add", removed_by=row(fact_id="e9")),
            {},
            f"e9 replaced it; {LATER}",
            id="replaced",
        ),
        pytest.param(
            decided("add", removed_by=row(undoes="r@1")),
            {},
            "r@1 was undone: `slumberd undo r@4`",
            id="removed by an undo",
        ),
        pytest.param(
            decided("noop", row=row("noop", reason="stale"), holder="e9"),
            {},
            f"a newer episode holds the key: e9; {LATER}",
            id="older than a fact",
        ),
        pytest.param(
            decided("noop", row=row("noop", reason="stale"), holder="e9", rival=FUTURE),
            {"latest": microseconds(at(59))},
            "a newer episode holds the key: e9; e9 is dated 2026-01-01 12:01:00Z, in the future:"
            " put that one again with its real timestamp",
            id="older than a fact of the future",
        ),
        pytest.param(
            decided("noop", row=row("noop", reason="stale"), holder="e9", rival=FUTURE),
            {"latest": microseconds(at(60))},
            f"a newer episode holds the key: e9; {LATER}",
            id="older than a fact of this moment",
        ),
        pytest.param(
            decided("noop", row=row("noop", reason="stale")),
            {},
            f"what it retracts is newer, or was not current any more; {LATER}",
            id="stale",
        ),
        pytest.param(
            decided("noop", row=row("noop", reason="retracted")),
            {},
            f"a newer retraction covers it; {LATER}",
            id="retracted",
        ),
        pytest.param(
            decided("noop", row=row("noop", reason="unresolved")),
            {},
            "it retracts nothing known yet; it will retract what arrives later and is older",
            id="unresolved",
        ),
        pytest.param(
            decided("noop", row=row("noop", reason="noop")),
            {},
            "its intent is noop; put it with another intent",
            id="noop",
        ),
        pytest.param(
            decided("noop", row=row("noop", event="withdrawal")),
            {},
            "the filter of r does not select it: object = 'tea'",
            id="withdrawn",
        ),
        pytest.param(
            decided("noop", row=row("noop", event="withdrawal")._replace(document=NO_LONGER)),
            {},
            "nothing needs to change: the newest version of the episode does not say it",
            id="no longer said",
        ),
        pytest.param(
            decided("noop", row=row("noop", event="gated")._replace(document=SCORED)),
            {},
            "its salience was 0.0190, and r requires 0.1; the rule scores it again when it is read",
            id="below the salience",
        ),
    ],
)
def test_each_outcome_has_its_remedy(
    decision: Decision, context: dict[str, Any], remedy: str
) -> None:
    assert would_change(decision, **({"rule": TEA} | context)) == remedy


def test_epilog_writes_example_or_examples() -> None:
    assert examples("slumberd a") == "\b\nExample:\nslumberd a"
    assert examples("slumberd a", "slumberd b") == "\b\nExamples:\nslumberd a\nslumberd b"


@pytest.mark.parametrize(("word", "column"), [("usr", "user"), ("idd", "id"), ("iid", "id")])
def test_misspelt_column_in_double_quotes_is_suggested_by_its_whole_name(
    word: str, column: str
) -> None:
    with pytest.raises(FilterError, match=f"did you mean '{column}'"):
        check_filter("r", f"\"{word}\" = 'a'")


def test_mistake_in_a_variable_has_no_line_and_no_column() -> None:
    environ = {"SLUMBERD_FACTS__PATH": "memory.db", "HOME": "/home/alice"}

    with pytest.raises(ConfigurationError) as raised:
        load_settings(None, overrides={}, environ=environ, system_file=Path("/nonexistent"))

    (mistake,) = raised.value.mistakes
    assert (mistake.line, mistake.column) == (0, 0)


def test_full_disk_at_the_last_line_is_an_error(
    capsys: pytest.CaptureFixture[str],
) -> None:
    full = Path("/dev/full").open("w")  # noqa: SIM115 # closing it fails, too

    with redirect_stdout(full):
        code = call(["version"])

    assert (code, capsys.readouterr().err) == (74, "slumberd: No space left on device\n")
    with suppress(OSError):
        full.close()
