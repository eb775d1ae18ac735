"""Turn options and the environment into settings, and make the state directory."""

from __future__ import annotations

from contextvars import ContextVar
from pathlib import Path

from slumberd.cli.each_shard import Users, with_shard
from slumberd.cli.environment import settings_variables
from slumberd.config.settings import Settings, load_settings
from slumberd.file_modes import make_directory


def settings_of(config: Path | None, state_dir: Path | None, *, user: Users = None) -> Settings:
    """Return the settings from the command line, the environment and the file.

    Args:
        config: The configuration file.
        state_dir: The state directory.
        user: The users that the command names: the settings are for their shard.

    Raises:
        ConfigurationError: With every mistake of every source.
        UsageError: The shard that was chosen does not exist, or the users are not in it.
    """
    settings = with_shard(read_settings(config, state_dir), user)
    _used.set(settings)
    return settings


def read_settings(config: Path | None, state_dir: Path | None) -> Settings:
    """Return the settings without the shard that ``--shard`` names.

    Raises:
        ConfigurationError: With every mistake of every source.
    """
    overrides = {"state_dir": state_dir}
    settings = load_settings(config, overrides=overrides, environ=settings_variables())
    _used.set(settings)
    return settings


_used: ContextVar[Settings | None] = ContextVar("used_settings", default=None)


def used_settings() -> Settings | None:
    """Return the settings of the command that runs; None before it has read them."""
    return _used.get()


def make_state_dir(settings: Settings) -> None:
    """Create the state directory if it is missing, for its owner and group only."""
    make_directory(settings.state_dir)
