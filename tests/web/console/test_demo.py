"""`slumberd demo --serve` shows the story in the web console."""

from __future__ import annotations

import signal
import sys
from pathlib import Path

import pytest

from slumberd.cli.own_installation import install_command
from tests.support.cli_runner import called
from tests.support.served_demo import serving_demo
from tests.support.waiting import PATIENCE_SECONDS

pytestmark = pytest.mark.acceptance


def test_demo_shows_the_facts_of_its_story(tmp_path: Path) -> None:
    with serving_demo(tmp_path) as demo, demo.browser() as browser:
        today = browser.get("/console/")

    assert today.status_code == 200
    assert today.url.path == "/console/today"
    assert "<b>28</b> learned" in today.text


@pytest.mark.nightly
def test_demo_serves_this_machine_only(tmp_path: Path) -> None:
    with serving_demo(tmp_path) as demo:
        assert demo.said["open"].startswith("http://127.0.0.1:")


@pytest.mark.cases(1)
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signal_ends_the_demo_and_removes_its_files(tmp_path: Path, number: int) -> None:
    with serving_demo(tmp_path) as demo:
        before = [*tmp_path.iterdir()]
        demo.process.send_signal(number)
        code = demo.process.wait(PATIENCE_SECONDS)

    assert len(before) == 1
    assert code == 0
    assert [*tmp_path.iterdir()] == []


@pytest.mark.nightly
def test_demo_with_keep_leaves_its_files(tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    with serving_demo(tmp_path, "--keep", str(kept)) as demo:
        demo.process.send_signal(signal.SIGTERM)
        demo.process.wait(PATIENCE_SECONDS)

    assert (kept / "facts.db").exists()
    assert (kept / "tokens.yaml").stat().st_mode & 0o777 == 0o600


@pytest.mark.path
def test_demo_without_the_extra_says_so_before_the_story(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "slumberd.web.http.server", None)

    refused = called("demo", "--serve")

    assert refused.returncode == 78
    assert install_command("serve") in refused.stderr
    assert refused.stdout == ""
