"""Find paths of the configuration with which the daemon does not start, or cannot work."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

from slumberd.model.errors import ConfigurationError, Mistake
from slumberd.rules.file_access import find_secret, is_installed, read_key, read_token
from slumberd.rules.rule_loader import RuleSet, rule_files
from slumberd.rules.settings import Settings
from slumberd.rules.yaml_reader import Document, read_document
from slumberd.tools.diagnostics.host_checks import (
    THIS_MACHINE,
    Account,
    Machine,
    credentials_of_unit,
    unit_account,
    unit_of,
)

Problem = tuple[str, str]
"""The key of a path, and what is wrong with it."""

ReadSecret = Callable[..., object]
"""Reads a file of secrets as the daemon does; raises ConfigurationError."""


def account_of(settings: Settings, machine: Machine = THIS_MACHINE) -> Account:
    """Return the account that the daemon runs as.

    It is the user of the installed unit, else the owner of the state directory, else this process.
    """
    directory = settings.state_dir
    try:
        found = unit_account(machine, directory)
    except KeyError:  # the finding unit.user reports it
        found = None
    if found is not None:
        return found
    if not directory.exists():
        return Account.numbered(os.geteuid(), os.getegid())
    owner = directory.stat()
    return Account.numbered(owner.st_uid, owner.st_gid)


def find_path_mistakes(
    settings: Settings,
    config: Path | None,
    *,
    read_tokens: ReadSecret | None = None,
    account: Account | None = None,
    machine: Machine = THIS_MACHINE,
) -> list[Mistake]:
    """Return the paths of the configuration that the daemon cannot use, in the order of the file.

    Args:
        config: Its file; None without one.
        read_tokens: Reads the file of tokens; None checks only who may read it.
        account: Whom the daemon runs as; None asks `account_of`.
    """
    who = account or account_of(settings, machine)
    problems = [
        *_check_places(settings, who, machine),
        *_check_secrets(settings, who, machine, read_tokens),
    ]
    document = None if config is None else read_document(config)
    mistakes = [_mistake_at(document, *problem) for problem in problems]
    return sorted(mistakes, key=lambda mistake: (mistake.line, mistake.column))


def _mistake_at(document: Document | None, key: str, problem: str) -> Mistake:
    """Return a mistake in the value of a key, at its place in the file if it is there."""
    trail = tuple(key.split("."))
    if document is None or trail not in document.values:
        return Mistake("settings", 0, 0, key, problem)
    return Mistake(document.file, *document.values[trail], key, problem)


def find_unreadable_files(
    settings: Settings, config: Path | None, account: Account, rules: RuleSet | None = None
) -> Iterator[Mistake]:
    """Find configuration and rule files that the daemon cannot read.

    Args:
        config: Its file; None without one.
        account: Whom the daemon runs as.
        rules: The rules, if they could be loaded; the files that they name count, too.
    """
    files = [file for file in (config,) if file is not None]
    if not settings.are_rules_published:
        files.append(settings.rules_dir)
        with suppress(ConfigurationError):  # the loader of the rules reports it
            files += rule_files(settings.rules_dir)
        files += [Path(file) for file in (rules.files if rules else ())]
    if settings.provenance.sink == "fathom" and (pack := settings.pack_path) is not None:
        files += [pack, *sorted(pack.rglob("*"))] if pack.is_dir() else [pack]
    seen: set[Path] = set()
    for file in files:
        blocked = _blocked(account, file)
        if blocked is not None and blocked not in seen:
            seen.add(blocked)
            right = "rX" if blocked == file else "x"
            problem = f"user {account.name!r}, whom the daemon runs as, cannot read it"
            remedy = f"run `chmod o+{right} {blocked}`, or give it to a group of that user"
            yield Mistake(str(file), 0, 0, "", f"{problem}; {remedy}")


def _blocked(account: Account, file: Path) -> Path | None:
    try:
        return account.find_blocked_path(file)
    except OSError:  # this process itself may not look there
        return None


def _check_places(settings: Settings, account: Account, machine: Machine) -> Iterator[Problem]:
    """Find directories and files that the daemon cannot make, open or write."""
    directory = settings.state_dir
    # The service manager makes the state directory of its unit, for the unit's user.
    is_made = not directory.exists() and unit_of(machine, directory) is not None
    if not is_made and (problem := _problem_of_directory(directory, account)):
        yield "state_dir", f"{str(directory)!r} {problem}"
        return
    for key, path, makes_directory in _written_files(settings):
        if is_made and makes_directory and path is not None and path.is_relative_to(directory):
            continue
        if path is not None and (
            problem := _problem_of_file(path, account, directory, makes_directory=makes_directory)
        ):
            yield key, f"{str(path)!r} {problem}"
    yield from _check_socket(settings, account)
    graph = settings.graph_path
    if graph is not None and graph.exists() and (blocked := _blocked(account, graph)) is not None:
        yield "graph.path", f"{str(graph)!r} cannot be used: {_unreadable(account, blocked)}"


def _written_files(settings: Settings) -> Iterator[tuple[str, Path | None, bool]]:
    """Yield the key and the path of each file that the daemon writes.

    The last value says whether the daemon also makes its directory.
    """
    yield "logging.file", settings.log_path, False
    yield "metrics.textfile", settings.textfile_path, False
    if settings.store is None:
        yield "memory.path", settings.memory_path, True
        yield "facts.path", settings.facts_path, True
    if settings.provenance.sink == "file":
        yield "provenance.file", settings.provenance_path, True


def _check_socket(settings: Settings, account: Account) -> Iterator[Problem]:
    path = settings.http_socket_path
    if not settings.serve.enabled or path is None or path.parent == settings.state_dir:
        return
    if problem := _problem_of_parent(path, account):
        yield "serve.socket", f"{str(path)!r} {problem}"


def _problem_of_directory(path: Path, account: Account) -> str:
    """Return why the daemon cannot use or make a directory; empty when it can."""
    if not path.exists():
        return _problem_of_new(path, account)
    if not path.is_dir():
        return "is a file, not a directory; name another directory"
    return "" if account.can_write(path) else f"cannot be used: {_unwritable(account, path)}"


def _problem_of_new(path: Path, account: Account) -> str:
    """Return why nothing can be made at a path, whose directories are made too."""
    above = next(parent for parent in path.parents if parent.exists())
    if not above.is_dir():
        return f"cannot be made: {str(above)!r} is a file; name another place"
    return "" if account.can_write(above) else f"cannot be made: {_unwritable(account, above)}"


def _problem_of_file(path: Path, account: Account, state: Path, *, makes_directory: bool) -> str:
    if path.is_symlink() and not path.exists():  # the file is made where the link leads to
        path, makes_directory = Path(os.path.realpath(path)), False
    if path.is_dir():
        return "is a directory, not a file; name a file in it"
    if path.exists():
        return "" if account.can_write(path) else f"cannot be used: {_unwritable(account, path)}"
    if path.parent == state:
        return ""  # which the daemon makes
    return _problem_of_new(path, account) if makes_directory else _problem_of_parent(path, account)


def _problem_of_parent(path: Path, account: Account) -> str:
    parent = path.parent
    if not parent.is_dir():
        what = "is no directory" if parent.exists() else "does not exist"
        return f"cannot be made: {str(parent)!r} {what}; make it, or name another place"
    return "" if account.can_write(parent) else f"cannot be made: {_unwritable(account, parent)}"


def _unwritable(account: Account, path: Path) -> str:
    return (
        f"user {account.name!r}, whom the daemon runs as, cannot write {str(path)!r}; give it to "
        "that user"
    )


def _unreadable(account: Account, path: Path) -> str:
    return (
        f"user {account.name!r}, whom the daemon runs as, cannot read {str(path)!r}; give it to "
        "that user"
    )


def _check_secrets(
    settings: Settings, account: Account, machine: Machine, read_tokens: ReadSecret | None
) -> Iterator[Problem]:
    """Find files of secrets that the daemon refuses."""
    given = credentials_of_unit(machine, settings.state_dir)
    credentials = settings.credentials_dir
    for key, file, read in _secrets(settings, read_tokens):
        if file is None or (credentials is None and str(file) in given):
            continue  # in the latter case the service manager provides it
        if credentials is None and file.is_absolute() and (blocked := _blocked(account, file)):
            yield key, f"{str(file)!r} cannot be used: {_unreadable(account, blocked)}"
            continue
        try:
            read(file, credentials)
        except ConfigurationError as error:
            if not isinstance(error.__cause__, PermissionError):  # the daemon has more rights
                for mistake in error.mistakes:
                    yield key, f"{mistake.file!r} {mistake.problem}"


def _secrets(
    settings: Settings, read_tokens: ReadSecret | None
) -> Iterator[tuple[str, Path | None, ReadSecret]]:
    def key_of(file: Path, credentials: Path | None) -> object:
        return read_key(file, credentials=credentials)

    def token_of(file: Path, credentials: Path | None) -> object:
        return read_token(file, credentials=credentials, setting="language_model.key_file")

    def tokens_of(file: Path, credentials: Path | None) -> object:
        if read_tokens is not None:
            return read_tokens(file, credentials=credentials)
        return find_secret(file, credentials=credentials, setting="serve.tokens_file")

    yield "facts.key_file", settings.facts.key_file, key_of
    if settings.language_model.base_url is not None and is_installed("llm"):
        yield "language_model.key_file", settings.language_model.key_file, token_of
    if settings.serve.enabled:
        yield "serve.tokens_file", settings.serve.tokens_file, tokens_of
