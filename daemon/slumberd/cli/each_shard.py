"""Run a command that reads stores once for each shard of a database."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from functools import wraps
from typing import Any

import typer

from slumberd.cli.options import chosen_shard
from slumberd.config.settings import Settings
from slumberd.errors import NoInputError, StoreError, UsageError
from slumberd.service.composition import count_shards, shard_of_owner


def with_shard(settings: Settings) -> Settings:
    """Return settings for the shard that was chosen; unchanged when none was.

    Raises:
        UsageError: The configuration names no database, or the database has no such shard.
    """
    if (shard := chosen_shard.get()) is None:
        return settings
    if settings.store is None:
        raise UsageError("--shard is for databases; the configuration names files")
    if shard >= (count := count_shards(settings)):
        raise UsageError(f"--shard {shard}: the database has the shards 0 to {count - 1}")
    return settings.of_shard(shard)


def for_each_shard(
    command: Callable[..., Any], settings_of: Callable[..., Settings]
) -> Callable[..., None]:
    """Return a command that runs once for each shard, under a heading; as before for one shard.

    A command that names a user and an agent runs for their shard only. When a shard does not know
    what was asked for, the others may. The exit code is the greatest of all.

    Args:
        command: The function of the command.
        settings_of: Returns the settings of a configuration file and a state directory.
    """

    @wraps(command)
    def run(**given: Any) -> None:  # the arguments of any command
        shards = _shards_of(settings_of(given.get("config"), given.get("state_dir")), given)
        if len(shards) <= 1:
            with _choosing(shards[0]) if shards else nullcontext():
                command(**given)
            return
        outcomes = [_run_on(shard, command, given) for shard in shards]
        absences = [one for one in outcomes if isinstance(one, NoInputError)]
        if len(absences) == len(shards):
            raise absences[0]
        if code := max(one for one in outcomes if isinstance(one, int)):
            raise typer.Exit(code)

    return run


def _run_on(shard: int, command: Callable[..., Any], given: dict[str, Any]) -> int | NoInputError:
    """Run a command on one shard; return its exit code, or that the shard knows nothing."""
    if not given.get("json"):
        print(f"== shard {shard} ==")
    try:
        with _choosing(shard):
            command(**given)
    except NoInputError as absence:
        return absence
    except typer.Exit as ended:
        return ended.exit_code
    return 0


def _shards_of(settings: Settings, given: dict[str, Any]) -> list[int]:
    """Return the shards that a command reads; none when there is nothing to choose."""
    if settings.store is None or settings.postgres.shard is not None:
        return []
    try:
        count = count_shards(settings)
    except StoreError:  # the command reports it
        return []
    if count == 1:
        return []
    user, agent = _one(given.get("user")), _one(given.get("agent"))
    if user is not None and agent is not None:
        return [shard_of_owner(user, agent, count)]
    return [*range(count)]


def _one(given: str | Sequence[str] | None) -> str | None:
    """Return the only value of an option, which may be one that is given several times."""
    if given is None or isinstance(given, str):
        return given
    return given[0] if len(given) == 1 else None


@contextmanager
def _choosing(shard: int) -> Iterator[None]:
    token = chosen_shard.set(shard)
    try:
        yield
    finally:
        chosen_shard.reset(token)
