"""Where the repository lies. A test that moves to another directory still finds its files."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).parents[2]
"""The repository's own directory."""

TESTS = ROOT / "tests"
