"""Turn options and the environment into settings of one shard, or of each shard in turn."""

from __future__ import annotations

import sys
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, redirect_stdout
from contextvars import ContextVar
from pathlib import Path
from typing import Any, TextIO, cast

import typer

from slumberd.cli.environment import settings_variables
from slumberd.cli.exit_codes import is_unexpected
from slumberd.cli.options import chosen_shard
from slumberd.cli.output import ShardOutput, shard_output
from slumberd.daemon.stores import settings_of_user, shards_of
from slumberd.file_modes import make_directory
from slumberd.model.errors import DamagedStoreError, NoInputError, UsageError
from slumberd.rules.settings import Settings, load_settings

Users = str | Sequence[str] | None
"""A user, or several, or none that a command names."""


def with_shard(settings: Settings, users: Users = None) -> Settings:
    """Return settings for the shard that was chosen, or for that of some users.

    Without either they are unchanged.

    Args:
        users: The users that the command names.

    Raises:
        UsageError: The configuration names no database; the database has no such shard; or a user
            lies in another shard, or the users lie in several.
    """
    chosen = chosen_shard.get()
    if settings.store is None:
        if chosen is not None:
            raise UsageError("--shard is for databases; the configuration names files")
        return settings
    if chosen is not None:
        settings = settings_of_user(settings.of_shard(chosen), None)
    named = [users] if isinstance(users, str) else [*(users or ())]
    found = [settings_of_user(settings, user) for user in named]
    if len({one.postgres.shard for one in found}) > 1:
        raise UsageError("the users lie in several shards; name one user")
    return found[0] if found else settings


def run_for_each_shard(command: Callable[..., Any], given: Mapping[str, Any]) -> None:
    """Run a command once for each shard, under a heading.

    As JSON, each document has the field ``shard``. When a shard does not have what was asked for,
    the others may. The exit code is the greatest of all.

    Args:
        given: Its arguments.

    Raises:
        UsageError: The configuration names files, or the command names a user.
        NoInputError: No shard has what was asked for.
    """
    if given.get("user"):
        raise UsageError("a user lies in one shard; leave out --all-shards")
    settings = settings_of(given.get("config"), given.get("state_dir"))
    if settings.store is None:
        raise UsageError("--all-shards is for databases; the configuration names files")
    seen: set[Hashable] = set()
    outputs = [ShardOutput(shard, seen) for shard in shards_of(settings)]
    outcomes = [_run_on(output, command, given) for output in outputs]
    absences = [one for one in outcomes if isinstance(one, NoInputError)]
    if len(absences) == len(outputs):
        raise absences[0]
    if code := max(one for one in outcomes if isinstance(one, int)):
        raise typer.Exit(code)


def _run_on(
    output: ShardOutput, command: Callable[..., Any], given: Mapping[str, Any]
) -> int | NoInputError:
    """Run a command on one shard; return its exit code, or that the shard knows nothing."""
    heading = nullcontext() if given.get("json") else _headed(output.shard)
    try:
        with _choosing(output), heading:
            command(**given)
    except NoInputError as absence:
        return absence
    except typer.Exit as ended:
        return ended.exit_code
    return 0


class _HeadedOutput:
    """Standard output that prints the heading of a shard before its first text."""

    def __init__(self, output: TextIO, heading: str) -> None:
        self._output = output
        self._heading = heading

    def write(self, text: str) -> int:
        """Write a text, after the heading if it is the first."""
        if text and self._heading:
            self._output.write(self._heading)
            self._heading = ""
        return self._output.write(text)

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 # whatever the output has
        return getattr(self._output, name)


@contextmanager
def _headed(shard: int) -> Iterator[None]:
    with redirect_stdout(cast("TextIO", _HeadedOutput(sys.stdout, f"== shard {shard} ==\n"))):
        yield


@contextmanager
def _choosing(output: ShardOutput) -> Iterator[None]:
    shard, printed = chosen_shard.set(output.shard), shard_output.set(output)
    try:
        yield
    finally:
        shard_output.reset(printed)
        chosen_shard.reset(shard)


def settings_of(config: Path | None, state_dir: Path | None, *, user: Users = None) -> Settings:
    """Return the settings from the command line, the environment and the file.

    Args:
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
"""The settings of the command that runs; None before it has read them."""


def make_state_dir(settings: Settings) -> None:
    """Create the state directory if it is missing, for its owner and group only."""
    make_directory(settings.state_dir)


def explain_by_damage(error: BaseException) -> BaseException:
    """Return an error that names the damage; the given error when the store is intact."""
    settings = _used.get()
    if settings is None or not is_unexpected(error):
        return error
    from slumberd.daemon.damage import describe_damage

    damage = describe_damage(settings)
    return DamagedStoreError(damage) if damage else error
