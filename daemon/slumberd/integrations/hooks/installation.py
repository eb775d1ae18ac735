"""Read and write the settings of a coding agent, and keep a record of what was inserted.

With the record, an uninstallation restores the very bytes of settings that nobody edited since.
"""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import NamedTuple

from slumberd.integrations.hooks.agents import EVENTS, CodingAgent
from slumberd.integrations.hooks.settings_text import (
    EditedText,
    commands_in,
    install_hooks,
    remove_hooks,
)
from slumberd.model.errors import AgentSettingsError

_NEW_FILE_MODE = 0o600
_DIRECTORY_MODE = 0o700
_CHARACTERS_OF_NAME = 32


class AgentSettings(NamedTuple):
    """What a settings file holds.

    Attributes:
        text: Its text; empty when there is no file.
        exists: Whether there is a file.
        inserted: What slumberd inserted; empty when somebody else wrote the file since.
        is_made: Whether slumberd made the file, and nobody else wrote it since.
    """

    text: str
    exists: bool
    inserted: tuple[tuple[int, int], ...] = ()
    is_made: bool = False


class SettingsFile:
    """The settings of a coding agent, in one file.

    Args:
        records: The directory of the records.
    """

    def __init__(self, path: Path, agent: CodingAgent, records: Path) -> None:
        self.path = path
        self._agent = agent
        # The file may be a link into a directory that is kept elsewhere: the link stays.
        self._target = Path(os.path.realpath(path))
        name = hashlib.sha256(os.fsencode(self._target)).hexdigest()[:_CHARACTERS_OF_NAME]
        self._record = records / f"{name}.json"

    def read(self) -> AgentSettings:
        """Return the settings.

        Raises:
            AgentSettingsError: The file cannot be read, or is no UTF-8.
        """
        try:
            encoded = self._target.read_bytes()
            text = encoded.decode()
        except FileNotFoundError:
            return AgentSettings("", exists=False)
        except (OSError, UnicodeDecodeError) as error:
            raise AgentSettingsError(str(self.path), f"cannot be read: {error}") from error
        return self._with_record(AgentSettings(text, exists=True), encoded)

    def installed(self, command: str) -> AgentSettings:
        """Return the settings with hooks that run a command.

        Raises:
            AgentSettingsError: The settings cannot be edited.
        """
        now = self.read()
        try:
            if commands_in(now.text, self._agent) == {event: [command] for event in EVENTS}:
                return now
            before = self._without_hooks(now)
            edited = install_hooks(before.text, self._agent, command)
        except ValueError as error:
            raise AgentSettingsError(str(self.path), str(error)) from error
        return AgentSettings(edited.text, True, edited.inserted, is_made=not before.exists)

    def uninstalled(self) -> AgentSettings:
        """Return the settings without hooks of slumberd.

        Raises:
            AgentSettingsError: The settings cannot be edited.
        """
        try:
            return self._without_hooks(self.read())
        except ValueError as error:
            raise AgentSettingsError(str(self.path), str(error)) from error

    def _without_hooks(self, now: AgentSettings) -> AgentSettings:
        """Return settings as they were before the installation, if the record says how.

        Raises:
            ValueError: They cannot be edited.
        """
        if now.is_made:
            return AgentSettings("", exists=False)
        if now.inserted:
            return AgentSettings(EditedText(now.text, now.inserted).without_inserted(), exists=True)
        return AgentSettings(remove_hooks(now.text, self._agent), exists=now.exists)

    def write(self, settings: AgentSettings) -> None:
        """Replace the file in one step, or remove it.

        Raises:
            OSError: A file cannot be written.
        """
        if not settings.exists:
            self._target.unlink(missing_ok=True)
            self._record.unlink(missing_ok=True)
            return
        encoded = settings.text.encode()
        if settings.inserted:
            document = {
                "path": str(self._target),
                "sha256": hashlib.sha256(encoded).hexdigest(),
                "inserted": settings.inserted,
                "is_made": settings.is_made,
            }
            # First: after a crash between the two, the record fits no file, and is not used.
            _replace(self._record, json.dumps(document).encode(), _NEW_FILE_MODE)
        mode = self._target.stat().st_mode & 0o7777 if self._target.exists() else _NEW_FILE_MODE
        _replace(self._target, encoded, mode)
        if not settings.inserted:
            self._record.unlink(missing_ok=True)

    def _with_record(self, settings: AgentSettings, encoded: bytes) -> AgentSettings:
        """Return settings with what the record says, if it is about these bytes."""
        try:
            record = json.loads(self._record.read_bytes())
        except (OSError, ValueError):
            return settings
        if record.get("sha256") != hashlib.sha256(encoded).hexdigest():
            return settings
        inserted = tuple((int(start), int(end)) for start, end in record["inserted"])
        return settings._replace(inserted=inserted, is_made=bool(record["is_made"]))


def _replace(path: Path, encoded: bytes, mode: int) -> None:
    """Write a file beside another one, and let it take its place."""
    path.parent.mkdir(mode=_DIRECTORY_MODE, parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        with open(os.open(temporary, flags, mode), "wb") as file:  # noqa: PTH123 # a descriptor
            os.fchmod(file.fileno(), mode)
            file.write(encoded)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
