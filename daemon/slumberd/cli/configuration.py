"""From the options and the environment to settings, directories and logs."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from slumberd.assembly import rules_in, rules_of
from slumberd.cli.environment import settings_variables, takes_colors
from slumberd.errors import ConfigurationError, Mistake
from slumberd.lock import DIRECTORY_MODE
from slumberd.logs import DeltaLines, configure, open_file
from slumberd.ports import Clock
from slumberd.rulebook import RuleSet
from slumberd.settings import Settings, load_settings


def settings_of(config: Path | None, state_dir: Path | None) -> Settings:
    """Return the settings that the command line, the environment and the file make.

    Raises:
        ConfigurationError: With every mistake of every source.
    """
    return load_settings(config, overrides={"state_dir": state_dir}, environ=settings_variables())


def loaded(config: Path | None, state_dir: Path | None) -> tuple[Settings, RuleSet]:
    """Return the settings, and the rules that they name.

    Raises:
        ConfigurationError: With every mistake of both.
    """
    try:
        settings = settings_of(config, state_dir)
    except ConfigurationError as error:
        raise ConfigurationError([*error.mistakes, *_mistakes_in(error.rules_dir)]) from error
    return settings, rules_of(settings)


def _mistakes_in(rules_dir: Path | None) -> list[Mistake]:
    try:
        if rules_dir is not None:
            rules_in(rules_dir, "UTC")
    except ConfigurationError as error:
        return error.mistakes
    return []


def make_state_dir(settings: Settings) -> None:
    """Create the state directory where it is missing, for owner and group only."""
    settings.state_dir.mkdir(DIRECTORY_MODE, parents=True, exist_ok=True)


@contextmanager
def logs(settings: Settings, clock: Clock) -> Iterator[DeltaLines]:
    """Send log lines where the settings say, while the block runs; yield the ledger's way there.

    Raises:
        ConfigurationError: The file cannot be opened.
    """
    style, level = settings.logging.format, settings.logging.level
    if settings.log_path is None:
        watched, colors = sys.stderr.isatty(), takes_colors()
        stream = sys.stderr.buffer
        yield configure(style, level, stream, terminal=watched, now=clock.now, colors=colors)
        return
    make_state_dir(settings)
    with open_file(settings.log_path) as file:
        yield configure(style, level, file, terminal=False, now=clock.now)
