"""Run a command that reads stores once for each shard of a database."""

from __future__ import annotations

import sys
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, redirect_stdout
from functools import wraps
from typing import Any, TextIO, cast

import typer

from slumberd.cli.options import chosen_shard
from slumberd.cli.output import ShardOutput, print_json, shard_output
from slumberd.config.settings import Settings
from slumberd.errors import ConfigurationError, NoInputError, StoreError, UsageError
from slumberd.service.composition import count_shards, shard_of_owner

Owners = str | Sequence[str] | None
"""A user or an agent, or several, or any."""

_ONCE = ("cron", "html", "kinds")
"""Arguments with which `next` and `doctor` read no store, and `report` reads all shards itself."""


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


def settings_of_shards(settings: Settings, user: Owners, agent: Owners) -> list[Settings]:
    """Return the settings of each shard that holds something of a user with an agent.

    Args:
        settings: The configuration.
        user: The users that a command names.
        agent: The agents that it names.
    """
    shards = _shards_of(settings, user, agent)
    return [settings.of_shard(shard) for shard in shards] or [settings]


def for_each_shard(
    command: Callable[..., Any], settings_of: Callable[..., Settings]
) -> Callable[..., None]:
    """Return a command that runs once for each shard, under a heading; as before for one shard.

    As JSON, each line has the field ``shard``. A command that prints one document prints one of
    all shards: ``{"shards": [...]}``. When a shard does not know what was asked for, the others
    may. The exit code is the greatest of all.

    Args:
        command: The function of the command.
        settings_of: Returns the settings of a configuration file and a state directory.
    """

    @wraps(command)
    def run(**given: Any) -> None:  # the arguments of any command
        shards = _shards_to_read(given, settings_of)
        if len(shards) <= 1:
            with _choosing(shards[0]) if shards else nullcontext():
                command(**given)
            return
        documents: list[object] = []
        seen: set[Hashable] = set()
        outputs = [ShardOutput(shard, documents, seen) for shard in shards]
        outcomes = [_run_on(output, command, given) for output in outputs]
        absences = [one for one in outcomes if isinstance(one, NoInputError)]
        if len(absences) == len(shards):
            raise absences[0]
        if documents:
            print_json({"shards": documents})
        if code := max(one for one in outcomes if isinstance(one, int)):
            raise typer.Exit(code)

    return run


def _shards_to_read(given: dict[str, Any], settings_of: Callable[..., Settings]) -> list[int]:
    """Return the shards for which a command runs; none when it runs once, as for files."""
    if any(given.get(name) for name in _ONCE):
        return []
    try:
        settings = settings_of(given.get("config"), given.get("state_dir"))
    except ConfigurationError:  # the command reports it in its own way
        return []
    return _shards_of(settings, given.get("user"), given.get("agent"))


def _run_on(
    output: ShardOutput, command: Callable[..., Any], given: dict[str, Any]
) -> int | NoInputError:
    """Run a command on one shard; return its exit code, or that the shard knows nothing."""
    heading = nullcontext() if given.get("json") else _headed(output.shard)
    try:
        with _choosing(output.shard), _into(output), heading:
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
def _into(output: ShardOutput) -> Iterator[None]:
    token = shard_output.set(output)
    try:
        yield
    finally:
        shard_output.reset(token)


def _shards_of(settings: Settings, user: Owners, agent: Owners) -> list[int]:
    """Return the shards that a command reads; none when there is nothing to choose."""
    if settings.store is None or settings.postgres.shard is not None:
        return []
    try:
        count = count_shards(settings)
    except StoreError:  # the command reports it
        return []
    if count == 1:
        return []
    one_user, one_agent = _one(user), _one(agent)
    if one_user is not None and one_agent is not None:
        return [shard_of_owner(one_user, one_agent, count)]
    return [*range(count)]


def _one(given: Owners) -> str | None:
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
