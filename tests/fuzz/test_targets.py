"""The targets of the fuzzer, without a fuzzer: the saved inputs, and oracles that find faults."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from typing import TYPE_CHECKING, Any

import orjson
import pytest

from slumberd.integrations.interchange import span_messages, spans
from slumberd.operations.caller import Caller
from slumberd.operations.handlers import Dispatcher
from slumberd.rules import rule_loader
from slumberd.storage import strict_json
from slumberd.storage.episodes import rows as episode_rows
from slumberd.web.mcp.connection import Connection
from tests.fuzz.control import ControlTarget
from tests.fuzz.http import HttpTarget
from tests.fuzz.rows import RowTarget, row_of, spelled
from tests.fuzz.rules import RuleTarget, peak
from tests.fuzz.targets import Finding, check_finds_nothing
from tests.support.late_imports import LateModule

if TYPE_CHECKING:
    from tests.fuzz import mcp as mcp_target
    from tests.fuzz import traces as trace_target
else:
    mcp_target = LateModule("tests.fuzz.mcp")
    trace_target = LateModule("tests.fuzz.traces")

pytestmark = [pytest.mark.unit, pytest.mark.slow]


@pytest.fixture
def rows() -> RowTarget:
    return RowTarget()


@pytest.fixture
def rules() -> Iterator[RuleTarget]:
    with closing(RuleTarget()) as target:
        yield target


@pytest.fixture(scope="module")
def control() -> Iterator[ControlTarget]:
    with closing(ControlTarget()) as target:
        yield target


@pytest.fixture(scope="module")
def http() -> Iterator[HttpTarget]:
    with closing(HttpTarget()) as target:
        yield target


# http


@pytest.mark.slow
def test_saved_requests_over_http_find_nothing(http: HttpTarget) -> None:
    check_finds_nothing(http, "http")


@pytest.mark.parametrize("answer", [b"SSH-2.0", b"HTTP/1.1 500 Internal Server Error\r\n\r\n"])
def test_answer_that_is_not_http_or_a_bug_is_a_finding(http: HttpTarget, answer: bytes) -> None:
    with pytest.raises(Finding):
        http.check(answer)


# rows


def test_saved_rows_find_nothing(rows: RowTarget) -> None:
    check_finds_nothing(rows, "rows")


def of_metadata(metadata: bytes) -> bytes:
    good = next(iter(RowTarget().seeds())).rpartition(b"\xfe")[0]
    return good + b"\xfe" + metadata


def test_a_row_is_spelled_by_types_and_columns() -> None:
    given = spelled(b"01243", b"id", b"key", b"four", b"", b"seven")

    assert row_of(given) == ("id", b"key", 4, None, 2.5)


def test_the_oracle_finds_a_decoder_that_raises(
    rows: RowTarget, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(episode_rows, "read_object", orjson.loads)

    with pytest.raises(AttributeError):
        rows.run_once(of_metadata(b"[]"))


def test_the_oracle_finds_a_decoder_that_ignores_a_repeated_key(
    rows: RowTarget, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(strict_json, "_has_each_key_once", lambda *_: True)

    with pytest.raises(Finding, match="a key is given twice"):
        rows.run_once(of_metadata(b'{"a":1,"a":1}'))


def test_the_oracle_finds_a_decoder_that_rounds(
    rows: RowTarget, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(strict_json, "_check_integer", int)

    with pytest.raises(Finding, match="another reader reads other metadata"):
        rows.run_once(of_metadata(b'{"a":18446744073709551617}'))


def test_the_oracle_finds_a_decoder_without_a_limit_of_depth(
    rows: RowTarget, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(strict_json, "MOST_DEPTH", 900)

    with pytest.raises((Finding, TypeError)):
        rows.run_once(of_metadata(b'{"a":' + b"[" * 300 + b"]" * 300 + b"}"))


# rules


@pytest.mark.slow
def test_saved_rule_files_find_nothing(rules: RuleTarget) -> None:
    check_finds_nothing(rules, "rules")


@pytest.mark.slow
@pytest.mark.parametrize(
    "given",
    [
        pytest.param(b"rules: " + b"[" * 200_000, id="depth"),
        pytest.param(b"rules: [" + b"a, " * 80_000 + b"]", id="values"),
        pytest.param(b"rules:\n" + b"- id: a\n" * 30_000, id="mistakes"),
    ],
)
def test_a_rule_file_takes_a_bounded_amount_of_memory(rules: RuleTarget, given: bytes) -> None:
    assert peak(rules, given[: 256 * 1024]) < 64 * 1024 * 1024


TWICE = b"""rules:
- {id: a, cadence: {every: 1}, when_filter: '', then_emits: [facts]}
- {id: a, cadence: {every: 1}, when_filter: '', then_emits: [facts]}
"""


def test_the_oracle_finds_a_loader_that_accepts_a_repeated_id(
    rules: RuleTarget, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rule_loader, "_find_repeated_ids", lambda _: [])

    with pytest.raises(Finding, match=r"rules \['a', 'a'\]"):
        rules.run_once(TWICE)


def test_the_oracle_finds_a_loader_that_raises_an_unknown_error(
    rules: RuleTarget, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rule_loader, "_read_sheet", lambda *_: 1 / 0)

    with pytest.raises(ZeroDivisionError):
        rules.run_once(TWICE)


# control


@pytest.mark.slow
def test_saved_requests_find_nothing(control: ControlTarget) -> None:
    check_finds_nothing(control, "control")


def request(operation: str) -> bytes:
    return orjson.dumps({"version": 1, "operation": operation}) + b"\n"


async def stumble(*_: Any) -> dict[str, Any]:
    raise RuntimeError("a bug")


def test_the_oracle_finds_an_operation_that_raises(
    control: ControlTarget, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(control.operations, "fuzz.stumble", stumble)

    with pytest.raises(Finding, match="which is a bug"):
        control.run_once(request("fuzz.stumble"))


@pytest.mark.parametrize(
    "answer", [pytest.param(b"", id="nothing"), pytest.param(b'{"ok":true}', id="no end of line")]
)
def test_the_oracle_finds_an_answer_that_is_not_one_line(
    control: ControlTarget, answer: bytes
) -> None:
    with pytest.raises(Finding, match="not one line"):
        control.check(answer)


# mcp


@pytest.fixture(scope="module")
def mcp() -> Iterator[mcp_target.McpTarget]:
    with closing(mcp_target.McpTarget()) as target:
        yield target


@pytest.mark.slow
def test_saved_messages_find_nothing(mcp: mcp_target.McpTarget) -> None:
    check_finds_nothing(mcp, "mcp")


def message(tool: str, arguments: dict[str, Any]) -> bytes:
    params = {"name": tool, "arguments": arguments}
    return orjson.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params})


def test_the_oracle_finds_the_memory_of_another_user(
    mcp: mcp_target.McpTarget, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Connection, "_scope_for", lambda *_: {"user": "bob"})
    monkeypatch.setattr(Caller, "_own", lambda _, __, ___, named: named)

    with pytest.raises(Finding, match="the memory of another user"):
        mcp.run_once(message("recall", {"query": mcp_target.SECRET}))


def test_the_oracle_finds_a_tool_that_stumbles(
    mcp: mcp_target.McpTarget, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Dispatcher, "call", stumble)

    with pytest.raises(Finding, match="a bug"):
        mcp.run_once(message("recall", {"query": "x"}))


# traces


def test_saved_traces_find_nothing() -> None:
    check_finds_nothing(trace_target.TraceTarget(), "traces")


def test_the_oracle_finds_recalled_text_that_is_learned_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(span_messages, "strip_recalled", str.strip)

    with pytest.raises(Finding, match="recalled"):
        check_finds_nothing(trace_target.TraceTarget(), "traces")


def test_the_oracle_finds_a_reader_that_raises(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spans, "_object", lambda value, _: value)

    with pytest.raises((AttributeError, TypeError)):
        check_finds_nothing(trace_target.TraceTarget(), "traces")
