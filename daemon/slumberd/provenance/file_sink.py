"""Append assertions and their provenance to a file, one line of JSON each."""

from __future__ import annotations

import asyncio
import os
import stat
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import orjson

from slumberd.model.provenance import ProvenanceBundle, assertion_document

MODE = 0o640
"""Assertions hold personal data, so only owner and group may read the file."""

_FLAGS = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_NONBLOCK | os.O_CLOEXEC


class FileSink:
    """Appends assertions to a file; implements `ProvenanceSink`.

    A line is ``{"template": …, "slots": {…}}``; the provenance is in the slots ``_origin`` and so
    on. Once a call has returned, its line survives a power cut. Each call opens the file, so it may
    be renamed or removed at any time. A crash or a full disk may leave an incomplete line; the next
    call starts a new line, and repeats the assertion.

    Args:
        path: The file; it is created for owner and group if it is missing.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        # One thread: while a disk hangs, no further threads pile up behind it.
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="file-sink")

    async def assert_with_provenance(
        self, template: str, slots: Mapping[str, object], provenance: ProvenanceBundle
    ) -> None:
        """Append an assertion.

        Raises:
            ProvenanceError: The assertion cannot be stored in any form.
            OSError: The line cannot be written completely.
        """
        line = orjson.dumps(
            {"template": template, "slots": assertion_document(slots, provenance)},
            option=orjson.OPT_APPEND_NEWLINE,
        )
        loop = asyncio.get_running_loop()
        await loop.run_in_executor(self._thread, _append, self._path, line)

    async def close(self) -> None:
        """Accept no more assertions; do not wait for one that is being written."""
        self._thread.shutdown(wait=False, cancel_futures=True)


def _append(path: Path, line: bytes) -> None:
    file = os.open(path, _FLAGS, MODE)
    try:
        status = os.fstat(file)
        if not stat.S_ISREG(status.st_mode):
            raise OSError(f"{str(path)!r} is not a regular file")
        if status.st_size and os.pread(file, 1, status.st_size - 1) != b"\n":
            line = b"\n" + line
        while line:
            line = line[os.write(file, line) :]
        os.fdatasync(file)
        if not status.st_size:
            _sync_directory(path.parent)
    finally:
        os.close(file)


def _sync_directory(directory: Path) -> None:
    """Make the name of a new file survive a power cut."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
