"""What a client and the log learn when an operation fails inside the daemon."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx
import pytest
from structlog.testing import capture_logs

from slumberd.operations.handlers import Dispatcher
from tests.support.mcp_clients import configure, serving

pytestmark = [pytest.mark.integration, pytest.mark.slow]


@pytest.mark.parametrize(
    ("error", "detail", "logged"),
    [
        pytest.param(
            ZeroDivisionError("what was divided"),
            "the daemon failed, which is a bug; see its log",
            ["ZeroDivisionError('what was divided')"],
            id="a bug",
        ),
        pytest.param(
            OSError(28, "No space left on device"),
            "the daemon cannot write: No space left on device; what is in the ledger is done",
            [],
            id="a full disk",
        ),
    ],
)
async def test_failure_is_a_problem_and_the_log_names_the_cause_of_a_bug(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    error: Exception,
    detail: str,
    logged: list[str],
) -> None:
    async def fail(*_: object) -> dict[str, Any]:
        raise error

    configure(tmp_path / "memory", {"ann": ("ann", "read")})
    async with serving(tmp_path / "memory") as socket:
        monkeypatch.setattr(Dispatcher, "call", fail)
        transport = httpx.AsyncHTTPTransport(uds=str(socket))
        async with httpx.AsyncClient(transport=transport, base_url="http://slumberd") as client:
            with capture_logs() as lines:
                answer = await client.get("/v1/facts", headers={"Authorization": "Bearer ann"})

    assert answer.status_code == 500
    assert "what was divided" not in answer.text
    assert answer.json()["detail"] == detail
    assert [line["error"] for line in lines if line["event"] == "http.failed"] == logged
