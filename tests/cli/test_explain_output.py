"""Single words and lines that commands print."""

from __future__ import annotations

from contextlib import redirect_stdout, suppress
from pathlib import Path

import pytest

from slumberd.cli import call
from slumberd.cli.explain_output import describe_removal
from slumberd.cli.registry import examples
from slumberd.config.settings import load_settings
from slumberd.consolidation.explanation import DetailedRecord
from slumberd.errors import ConfigurationError, FilterError
from slumberd.filters.sandbox import check_filter
from slumberd.model.record import Kind, Record
from tests.support.builders import START

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
