"""Write events into the journal of systemd, with fields that ``journalctl`` selects by.

The protocol is that of ``sd_journal_send``: a datagram for each entry. What the journal does not
take goes to standard error, which leads to the journal as well.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator
from pathlib import Path

from slumberd.logs.lines import Event, LineStream, Render, WriteRequest

JOURNAL_SOCKET = Path("/run/systemd/journal/socket")
"""Where the journal takes entries."""

PRIORITIES = {"debug": b"7", "info": b"6", "warning": b"4", "error": b"3"}
"""The priority of each level, as syslog numbers them."""

FIELDS = (
    "event", "rule_id", "firing_id", "run_id", "fact_id", "kind", "user", "agent", "operation",
    "error", "shard",
)  # fmt: skip
"""The keys of an event that become fields, in capitals; users and agents as the line names them."""

_HEADER = struct.Struct("<II")
"""Before each entry: its length, and where its message begins."""

_LENGTH = struct.Struct("<Q")


def render_entries(render: Render) -> Render:
    """Return a function that renders an event as an entry, for a `JournalStream`.

    Args:
        render: Renders the message: the line of the event.
    """

    def render_entry(event: Event) -> bytes:
        """Render an event as an entry with its header."""
        message = render(event).rstrip(b"\n")
        fields = b"PRIORITY=%b\nSYSLOG_IDENTIFIER=slumberd\n" % PRIORITIES[event["level"]]
        fields += b"".join(_fields_of(event))
        before = fields + b"MESSAGE\n" + _LENGTH.pack(len(message))
        entry = before + message + b"\n"
        return _HEADER.pack(len(entry), len(before)) + entry

    return render_entry


def _fields_of(event: Event) -> Iterator[bytes]:
    for key in FIELDS:
        value = event.get(key)
        if isinstance(value, str | int) and value != "":
            name = key.upper().encode()
            content = str(value).encode(errors="backslashreplace")
            if b"\n" in content:
                yield name + b"\n" + _LENGTH.pack(len(content)) + content + b"\n"
            else:
                yield name + b"=" + content + b"\n"


class JournalStream:
    """Sends the entries of `render_entries` to the journal, from any thread.

    Attributes:
        dropped: Always 0: the journal has room, or its writer waits.

    Args:
        stream: Takes the lines that the journal does not take.
        address: The socket of the journal.
    """

    def __init__(self, stream: LineStream, address: Path = JOURNAL_SOCKET) -> None:
        self.dropped = 0
        self._stream = stream
        self._address = str(address)
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)

    def write(self, lines: bytes, *, must: bool = False) -> bool:
        """Send entries; return whether all are written.

        Args:
            lines: Whole entries.
            must: Whether a failure is an error, and not only a lost line.

        Raises:
            OSError: An entry must be written, and could not be.
        """
        written = [self._write(*each, must=must) for each in _entries_in(lines)]
        return all(written)

    def write_and_wait(self, lines: bytes) -> WriteRequest:
        """Send entries that must be written; see `write`."""
        self.write(lines, must=True)
        return WriteRequest(lambda: None, done=True)

    def close(self) -> None:
        """Close the socket."""
        self._socket.close()

    def _write(self, entry: bytes, message: bytes, *, must: bool) -> bool:
        try:
            # By the address each time: a journal that starts anew has another socket there.
            self._socket.sendto(entry, self._address)
        except OSError:  # the journal does not run, or the entry is too long for a datagram
            priority = entry[len(b"PRIORITY=") : len(b"PRIORITY=") + 1]
            prefix = b"<%b>" % priority
            lines = b"".join(prefix + line + b"\n" for line in message.split(b"\n"))
            return self._stream.write(lines, must=must)
        return True


def _entries_in(lines: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Yield each entry, and its message."""
    place = 0
    while place < len(lines):
        length, message = _HEADER.unpack_from(lines, place)
        place += _HEADER.size
        entry = lines[place : place + length]
        yield entry, entry[message : length - 1]
        place += length
