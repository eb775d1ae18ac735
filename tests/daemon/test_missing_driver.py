"""A configuration that names a database needs the extra ``postgres``."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.integration

WITHOUT_DRIVER = """
import sys
sys.modules["psycopg"] = None
from slumberd.cli import call
sys.exit(call(sys.argv[1:]))
"""


@pytest.mark.parametrize("command", ["facts", "fire --all", "next"])
def test_database_without_its_driver_is_an_error_that_names_the_extra(
    tmp_path: Path, command: str
) -> None:
    config = tmp_path / "config.yaml"
    config.write_text("state_dir: .\nrules_dir: .\nstore: postgresql://nowhere/memory\n")

    run = subprocess.run(
        [sys.executable, "-c", WITHOUT_DRIVER, *command.split(), "--config", str(config)],
        capture_output=True,
        text=True,
    )

    assert run.returncode == 78
    assert "[postgres]" in run.stderr
