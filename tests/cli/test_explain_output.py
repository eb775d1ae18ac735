"""Single words and lines that commands show to people."""

from __future__ import annotations

from contextlib import redirect_stdout, suppress
from pathlib import Path

import pytest

from slumberd.cli import call
from slumberd.cli.explain_output import describe_removal
from slumberd.cli.registry import examples
from slumberd.config.settings import load_settings
from slumberd.consolidation.explanation import Line
from slumberd.errors import ConfigurationError, FilterError
from slumberd.filters.sandbox import check_filter
from tests.support.builders import START

pytestmark = pytest.mark.unit


def line(**given: object) -> Line:
    """Return the row of an episode ``e2`` that has replaced another fact."""
    told = {
        "seq": 5, "first": 5, "what": "claim", "kind": "update", "reason": "", "fact_id": "e2",
        "replaces": ("e1",), "log_number": 2, "key_id": 2, "said": 0, "document": {},
        "firing_id": "r@4", "rule_id": "r", "rule_hash": "", "trigger": "manual", "at": START,
        "by": "", "undoes": "",
    }  # fmt: skip
    return Line(**(told | given))  # type: ignore[arg-type] # its fields, by name


@pytest.mark.parametrize(
    ("row", "words"),
    [
        pytest.param(line(), "e2 replaced it", id="an episode"),
        pytest.param(line(by="uid 7"), "e2 replaced it", id="an episode, fired on request"),
        pytest.param(line(kind="delete"), "e2 retracted it", id="a delete"),
        pytest.param(line(kind="delete", by="uid 7"), "e2 retracted it", id="a delete on request"),
        pytest.param(
            line(kind="delete", rule_id="@manual", by="uid 7"),
            "a person retracted it (uid 7)",
            id="a person",
        ),
        pytest.param(
            line(kind="delete", rule_id="@external"), "another program retracted it", id="a program"
        ),
        pytest.param(
            line(rule_id="@manual", by="uid 7"),
            "e2 replaced it: a person pinned it (uid 7)",
            id="a pin",
        ),
        pytest.param(
            line(fact_id="e1", what="withdrawal"),
            "r no longer selects its episode",
            id="a filter",
        ),
        pytest.param(
            line(fact_id="e1", what="quarantine", reason="intent_unknown"),
            "a newer version of its episode cannot be read (intent_unknown)",
            id="an edit that cannot be read",
        ),
        pytest.param(
            line(fact_id="e1"), "a newer version of its episode does not assert it", id="an edit"
        ),
        pytest.param(line(fact_id="e1", undoes="r@1"), "r@1 was undone", id="its undoing"),
        pytest.param(
            line(undoes="r@1"),
            "e2 is current again since r@1 was undone",
            id="the undoing of another",
        ),
    ],
)
def test_reason_why_a_fact_went_names_who_took_it_out(row: Line, words: str) -> None:
    assert describe_removal(row, "e1") == words


def test_epilog_counts_its_examples() -> None:
    assert examples("slumberd a") == "\b\nExample:\nslumberd a"
    assert examples("slumberd a", "slumberd b") == "\b\nExamples:\nslumberd a\nslumberd b"


@pytest.mark.parametrize(("word", "column"), [("usr", "user"), ("idd", "id"), ("iid", "id")])
def test_misspelt_column_in_double_quotes_is_suggested_by_its_whole_name(
    word: str, column: str
) -> None:
    with pytest.raises(FilterError, match=f"did you mean '{column}'"):
        check_filter("r", f"\"{word}\" = 'a'")


def test_setting_without_a_file_is_a_mistake_without_a_place() -> None:
    environ = {"SLUMBERD_FACTS__PATH": "memory.db", "HOME": "/home/alice"}

    with pytest.raises(ConfigurationError) as raised:
        load_settings(None, overrides={}, environ=environ, system_file=Path("/nonexistent"))

    (mistake,) = raised.value.mistakes
    assert (mistake.line, mistake.column) == (0, 0)


def test_last_line_that_a_full_disk_does_not_take_is_an_error(
    capsys: pytest.CaptureFixture[str],
) -> None:
    full = Path("/dev/full").open("w")  # noqa: SIM115 # closing it fails, too

    with redirect_stdout(full):
        code = call(["version"])

    assert (code, capsys.readouterr().err) == (74, "slumberd: No space left on device\n")
    with suppress(OSError):
        full.close()
