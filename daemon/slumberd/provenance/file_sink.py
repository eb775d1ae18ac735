"""Records assertions with their provenance in a file, a line of JSON each."""

from __future__ import annotations

import asyncio
import os
import stat
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import orjson

from slumberd.model.provenance import ProvenanceBundle, asserted

MODE = 0o640
"""What is asserted is personal, so others than owner and group do not read it."""

_FLAGS = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_NONBLOCK | os.O_CLOEXEC


class FileSink:
    """Appends assertions to a file; implements ``ports.ProvenanceSink``.

    A line is ``{"template": …, "slots": {…}}``, with the provenance under ``_origin`` and so on.
    It survives a power cut once the call has returned. The file is opened for each, so it may be
    renamed and taken away at any time. After a line that was cut by a crash or a full disk, the
    next begins on a line of its own, and says the same again.

    Args:
        path: The file; created for owner and group.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        # One thread: what waits behind a disk that hangs is let go with whoever asked for it.
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="recorder")

    async def assert_with_provenance(
        self, template: str, slots: Mapping[str, object], provenance: ProvenanceBundle
    ) -> None:
        """Append an assertion.

        Raises:
            ProvenanceError: It has no form that could be stored.
            OSError: It cannot be written whole.
        """
        line = orjson.dumps(
            {"template": template, "slots": asserted(slots, provenance)},
            option=orjson.OPT_APPEND_NEWLINE,
        )
        loop = asyncio.get_running_loop()
        await loop.run_in_executor(self._thread, _append, self._path, line)

    async def close(self) -> None:
        """Take no more; what is being written is let go."""
        self._thread.shutdown(wait=False, cancel_futures=True)


def _append(path: Path, line: bytes) -> None:
    file = os.open(path, _FLAGS, MODE)
    try:
        status = os.fstat(file)
        if not stat.S_ISREG(status.st_mode):
            raise OSError(f"{str(path)!r} is no file")
        if status.st_size and os.pread(file, 1, status.st_size - 1) != b"\n":
            line = b"\n" + line
        while line:
            line = line[os.write(file, line) :]
        os.fdatasync(file)
        if not status.st_size:
            _keep_name(path.parent)
    finally:
        os.close(file)


def _keep_name(directory: Path) -> None:
    """Let the name of a new file survive a power cut, too."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
