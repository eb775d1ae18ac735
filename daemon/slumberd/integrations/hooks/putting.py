"""Put the new turns of transcripts as episodes, each once, in the order of the transcript."""

from __future__ import annotations

import errno
import fcntl
import stat
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from slumberd.integrations.hooks.agents import CLAUDE_CODE, CODEX
from slumberd.integrations.hooks.claude_code import read_claude_code
from slumberd.integrations.hooks.codex import read_codex
from slumberd.integrations.hooks.cursors import START, Cursors, Transcript, cursor_at, start_of
from slumberd.integrations.hooks.daemon_client import DaemonAnswer, call_daemon
from slumberd.integrations.hooks.history import TranscriptHistory, TurnStep, names_in
from slumberd.integrations.hooks.transcripts import (
    TranscriptLine,
    TranscriptTurn,
    episodes_of,
    read_record,
)

Report = Callable[[str], None]
"""Writes a line for a person."""

MOST_LINE_BYTES = 16 * 1024 * 1024
"""A longer line is skipped. Claude Code and Codex write pictures of a few megabytes."""

MOST_FAILURES = 2
"""How many hooks may fail to read a line; the next hook skips it."""

_NO_LOCKS = (errno.EBADF, errno.ENOLCK, errno.ENOTSUP)
"""The errors of network file systems that lock no file that is only read."""

_LONG_LINE_BYTES = 1024 * 1024
_BYTES_BETWEEN_CURSORS = 4 * 1024 * 1024
_STEPS_BETWEEN_CURSORS = 64
_CHARACTERS_OF_SESSION = 1_000


class HookTarget(NamedTuple):
    """The memory that a hook speaks to.

    Attributes:
        coding_agent: The name of the coding agent that runs the hook.
        user: Whose memory it is.
        agent: Which agent's memory it is.
        state_dir: The state directory of the daemon.
    """

    coding_agent: str
    user: str
    agent: str
    state_dir: Path

    def ask(self, operation: str, **fields: object) -> DaemonAnswer:
        """Return the daemon's answer about this memory, or why there is none."""
        request = {"user": self.user, "agent": self.agent, **fields}
        return call_daemon(self.state_dir, operation, request)


class TurnPutter:
    """Puts the turns of transcripts into one memory.

    A turn counts as put when the daemon has it on disk. When the daemon cannot take one, the cursor
    stays before that turn, and the next hook goes on there. Hooks that run at the same time read a
    transcript one after the other.

    Args:
        target: The memory.
        cursors: How far each transcript has been put.
        report: Reports what could not be put.
    """

    def __init__(self, target: HookTarget, cursors: Cursors, report: Report) -> None:
        self._target = target
        self._cursors = cursors
        self._report = report

    def put(self, transcript: Transcript) -> None:
        """Put the new turns of a transcript, then those that earlier hooks left behind.

        Raises:
            OSError: A file cannot be read or written.
        """
        self._cursors.mark_unfinished(transcript)
        left = [other for other in self._cursors.unfinished() if other.path != transcript.path]
        for each in (transcript, *left):
            # The hook of another session may just read what that session left.
            with suppress(BlockingIOError):
                if not self._put_rest(each, is_own=each is transcript):
                    return

    def _put_rest(self, transcript: Transcript, *, is_own: bool) -> bool:
        """Put what is left of a transcript; return whether the daemon took everything.

        Raises:
            BlockingIOError: Another hook reads the transcript, which is of another session.
        """
        finished = is_whole = False
        try:
            if not stat.S_ISREG(Path(transcript.path).stat().st_mode):
                self._report(f"the transcript {transcript.path!r} is no file")
                finished = is_whole = True
                return True
            with Path(transcript.path).open("rb") as file:
                _lock(file, fcntl.LOCK_EX | (0 if is_own else fcntl.LOCK_NB))
                reading = _Reading(self._target, self._cursors, self._report, transcript, file)
                finished = reading.put()
                is_whole = not reading.ends_within_line
        except FileNotFoundError:
            self._report(f"the transcript {transcript.path!r} is gone")
            finished = is_whole = True
        except (TimeoutError, BlockingIOError):
            raise
        except OSError as error:
            if is_own:
                raise
            self._report(f"the transcript {transcript.path!r} of another session: {error}")
            return True  # the others are not to wait for it
        finally:
            # Another hook may have put less, or more, at the same time: each says what it saw.
            is_done = finished and is_whole
            mark = self._cursors.mark_finished if is_done else self._cursors.mark_unfinished
            mark(transcript)
        return finished


def _lock(file: BinaryIO, how: int) -> None:
    """Lock an open transcript for this hook, if its file system can do that.

    Raises:
        BlockingIOError: Another hook has locked it, and the lock was not to wait.
    """
    try:
        fcntl.flock(file, how)
    except OSError as error:
        if error.errno not in _NO_LOCKS:
            raise


class _Reading:
    """Reads one open transcript from its cursor on, and puts what is new in it.

    Attributes:
        ends_within_line: Whether its last line has no end yet, and was left to a later hook.
    """

    def __init__(
        self,
        target: HookTarget,
        cursors: Cursors,
        report: Report,
        transcript: Transcript,
        file: BinaryIO,
    ) -> None:
        self._target = target
        self._cursors = cursors
        self._report = report
        self._transcript = transcript
        self._file = file
        cursor = start_of(file, cursors.read(transcript))
        try:
            self._history = TranscriptHistory(cursor.history, self._names_in)
        except (AttributeError, KeyError, TypeError, ValueError):  # somebody edited it
            cursor, self._history = START, TranscriptHistory({}, self._names_in)
        self._failed_at, self._failures = cursor.failed_at, cursor.failures
        self._reported = self._history.counts()["unknown"]
        self._offset = self._saved = cursor.offset
        self._is_inside = cursor.is_inside
        self._steps = 0
        self.ends_within_line = False

    def put(self) -> bool:
        """Put the lines after the cursor, and move the cursor; return whether all were taken."""
        is_done = False
        try:
            is_done = self._put_lines()
        finally:
            if not is_done:
                self._save_earlier()
        return is_done

    def _put_lines(self) -> bool:
        self._file.seek(self._offset)
        while line := self._file.readline(MOST_LINE_BYTES):
            is_whole = line.endswith(b"\n")
            if not is_whole and not self._is_inside and len(line) < MOST_LINE_BYTES:
                self.ends_within_line = True  # the last line is still being written
                break
            is_part = self._is_inside or not is_whole
            steps = self._skip_part(is_whole=is_whole) if is_part else self._read(line)
            if not self._put_all(steps):
                return False
            self._offset += len(line)
            self._steps += len(steps)
            is_far = self._offset - self._saved >= _BYTES_BETWEEN_CURSORS
            if is_far or self._steps >= _STEPS_BETWEEN_CURSORS:
                self._save()
        if not self._put_all(self._history.flush()):
            return False
        self._save()
        is_reported = self._reported == self._history.counts()["unknown"]
        return is_reported or not _failed(self._call(None))

    def _save_earlier(self) -> None:
        """Move the cursor to the line that could not be put.

        What is known by now may be half of what that line says, so the lines before it are read
        again.
        """
        forgotten = self._history.forgotten
        settled = self._read_again(self._offset)
        if settled < self._offset:
            self._read_again(settled)
        self._history.keep_forgotten(forgotten)
        self._save()

    def _read_again(self, upto: int) -> int:
        """Read the lines from the cursor to a place; return the last place where no turn waits."""
        cursor = start_of(self._file, self._cursors.read(self._transcript))
        self._history, self._is_inside = (
            TranscriptHistory(cursor.history, self._names_in),
            cursor.is_inside,
        )
        self._offset = settled = cursor.offset
        self._file.seek(cursor.offset)
        while self._offset < upto and not self._is_inside:
            line = self._file.readline(MOST_LINE_BYTES)
            if not line.endswith(b"\n"):
                break  # the cursor was moved when the long line began
            try:
                self._history.add(self._found(line), self._offset)
            except ValueError:
                self._history.count_unreadable()
            self._offset += len(line)
            if not self._history.is_waiting:
                settled = self._offset
        return settled

    def _names_in(self, session: str) -> list[str] | None:
        """Return the names of the turns of another session; None when no hook has read it."""
        history = self._cursors.history_of(session)
        return None if history is None else names_in(history)

    def _found(self, line: bytes) -> TranscriptLine:
        return read_line(self._target.coding_agent, line, self._transcript.session)

    def _skip_part(self, *, is_whole: bool) -> list[TurnStep]:
        """Skip a part of a line that is too long, and return what waited before it."""
        steps = [] if self._is_inside else self._history.flush()
        if not self._is_inside:
            self._skip(f"it is longer than {MOST_LINE_BYTES:,} bytes")
        self._is_inside = not is_whole
        return steps

    def _read(self, line: bytes) -> list[TurnStep]:
        """Return what is to be done with the turns of a line."""
        if self._failed_at == self._offset and self._failures >= MOST_FAILURES:
            self._skip(f"{MOST_FAILURES} hooks ended while they read it")
            return []
        is_long = len(line) > _LONG_LINE_BYTES
        if is_long:  # the agent may kill a hook that reads one line for too long
            self._note_failure()
        try:
            steps = self._history.add(self._found(line), self._offset)
        except ValueError as error:
            self._skip(str(error))
            return []
        except Exception:  # also the end of the hook's time
            self._note_failure()
            raise
        if is_long:
            self._note_failure(-1)
        return steps

    def _skip(self, reason: str) -> None:
        self._history.count_unreadable()
        self._report(f"a line of {self._transcript.path!r} was skipped: {reason}")

    def _note_failure(self, more: int = 1) -> None:
        """Keep how many hooks failed at the line that is read, without moving the cursor."""
        before = self._failures if self._failed_at == self._offset else 0
        self._failed_at, self._failures = self._offset, before + more
        cursor = start_of(self._file, self._cursors.read(self._transcript))
        noted = cursor._replace(failed_at=self._failed_at, failures=self._failures)
        self._cursors.write(self._transcript, noted)

    def _save(self) -> None:
        """Move the cursor, unless a turn before it waits."""
        if not self._history.is_waiting:
            history = self._history.document()
            cursor = cursor_at(self._file, self._offset, history)
            self._cursors.write(
                self._transcript,
                cursor._replace(
                    is_inside=self._is_inside, failed_at=self._failed_at, failures=self._failures
                ),
            )
            self._saved, self._steps = self._offset, 0

    def _put_all(self, steps: list[TurnStep]) -> bool:
        """Put what changes, in order; return whether it needs no further try."""
        return all(self._put_step(step) for step in steps)

    def _put_step(self, step: TurnStep) -> bool:
        turn = step.turn or self._turn_at(step.offset)
        for request in () if turn is None else self._requests_of(turn, step):
            answer = self._call(request)
            if _failed(answer):
                return False
            asked = answer.document.get("forget")
            if asked is not None:
                steps = self._history.forget(step.number, also_before=asked == "that")
                return self._put_all(steps)
        return True

    def _requests_of(self, turn: TranscriptTurn, step: TurnStep) -> Iterator[dict[str, Any]]:
        """Yield what is put of a turn: the only place where a turn becomes a request."""
        is_forgotten = step.number in self._history.forgotten
        for request in episodes_of(turn, self._target.user, self._target.agent):
            if is_forgotten:
                yield {**request, "text": "", "forgotten": True}
            else:
                yield {**request, "is_copy": step.is_copy, "withdrawn": step.withdrawn}

    def _turn_at(self, offset: int) -> TranscriptTurn | None:
        """Return the turn of an earlier line; None when it is not there any more."""
        place = self._file.tell()
        self._file.seek(offset)
        line = self._file.readline(MOST_LINE_BYTES)
        self._file.seek(place)
        try:
            return self._found(line).turn
        except ValueError:
            return None

    def _call(self, turn: dict[str, Any] | None) -> DaemonAnswer:
        """Put a turn, or only say what was read."""
        scope = {"user": self._target.user, "agent": self._target.agent}
        own = {key: value for key, value in (turn or {}).items() if key not in scope}
        counts = self._history.counts()
        request = {
            **scope,
            "session": self._transcript.session[:_CHARACTERS_OF_SESSION] or "default",
            "coding_agent": self._target.coding_agent,
            "transcript": self._transcript.path,
            **counts,
            "turn": own or None,
        }
        self._reported = counts["unknown"]
        answer = call_daemon(self._target.state_dir, "transcript", request)
        if answer.problem:
            self._report(answer.problem)
        return answer


def _failed(answer: DaemonAnswer) -> bool:
    """Return whether a call failed, and may succeed later."""
    return bool(answer.problem) and not answer.final


_READERS: dict[str, Callable[[dict[str, Any], bytes, str], TranscriptLine]] = {
    CLAUDE_CODE.name: read_claude_code,
    CODEX.name: read_codex,
}


def read_line(agent: str, line: bytes, session: str) -> TranscriptLine:
    """Return what a line says.

    Args:
        agent: The name of the coding agent that wrote the transcript.
        session: The conversation, unless the line names its own.

    Raises:
        ValueError: The line is no JSON object, or a field that it always has is missing.
    """
    return _READERS[agent](read_record(line), line, session)
