"""From the options and the environment to settings, directories and logs."""

from __future__ import annotations

import sys
from pathlib import Path

from slumberd.cli.environment import settings_variables
from slumberd.lock import DIRECTORY_MODE
from slumberd.logs import DeltaLines, configure
from slumberd.ports import Clock
from slumberd.settings import Settings, load_settings


def settings_of(config: Path | None, state_dir: Path | None) -> Settings:
    """Return the settings that the command line, the environment and the file make.

    Raises:
        ConfigurationError: With every mistake of every source.
    """
    return load_settings(
        config, overrides={"state_dir": state_dir}, environ=settings_variables()
    )


def make_state_dir(settings: Settings) -> None:
    """Create the state directory where it is missing, for owner and group only."""
    settings.state_dir.mkdir(DIRECTORY_MODE, parents=True, exist_ok=True)


def open_logs(settings: Settings, clock: Clock) -> DeltaLines:
    """Send log lines where the settings say; return the ledger's way there.

    Raises:
        ConfigurationError: The file cannot be opened.
    """
    make_state_dir(settings)
    target = settings.log_path
    return configure(
        settings.logging.format,
        settings.logging.level,
        sys.stderr.buffer if target is None else target,
        terminal=target is None and sys.stderr.isatty(),
        now=clock.now,
    )
