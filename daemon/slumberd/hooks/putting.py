"""Put the new turns of transcripts as episodes, each once, in the order of the transcript."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from slumberd.hooks.cursors import Cursors, Transcript, cursor_at, start_of
from slumberd.hooks.daemon_client import Answer, call_daemon
from slumberd.hooks.forgetting import ForgottenTurns
from slumberd.hooks.transcripts import episodes_of, read_turn

Report = Callable[[str], None]
"""Writes a line for a person."""


class Target(NamedTuple):
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

    def ask(self, operation: str, **fields: object) -> Answer:
        """Return the daemon's answer about this memory, or why there is none."""
        request = {"user": self.user, "agent": self.agent, **fields}
        return call_daemon(self.state_dir, operation, request)


class TurnPutter:
    """Puts the turns of transcripts into one memory.

    A turn counts as put when the daemon has it on disk. When the daemon cannot take one, the cursor
    stays before that turn, and the next hook goes on there. Hooks may run at the same time: a turn
    that both put has the same id, and a cursor is only ever behind what was put.

    Args:
        target: The memory.
        cursors: How far each transcript has been put.
        report: Reports what could not be put.
    """

    def __init__(self, target: Target, cursors: Cursors, report: Report) -> None:
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
            if not self._put_rest(each):
                return

    def _put_rest(self, transcript: Transcript) -> bool:
        """Put what is left of a transcript; return whether the daemon took everything."""
        finished = False
        try:
            with Path(transcript.path).open("rb") as file:
                finished = self._put_from(transcript, file)
        except FileNotFoundError:
            self._report(f"the transcript {transcript.path!r} is gone")
            finished = True
        finally:
            # Another hook may have put less, or more, at the same time: each says what it saw.
            mark = self._cursors.mark_finished if finished else self._cursors.mark_unfinished
            mark(transcript)
        return finished

    def _put_from(self, transcript: Transcript, file: BinaryIO) -> bool:
        """Put the lines after the cursor, and move the cursor; return whether all were taken."""
        cursor = self._cursors.read(transcript)
        offset = start_of(file, cursor)
        forgotten = ForgottenTurns(cursor.last_turn if offset else {})
        file.seek(offset)
        try:
            for line in file:
                # A last line without an end is still being written.
                if not line.endswith(b"\n"):
                    break
                if not self._put_line(transcript, line, forgotten):
                    return False
                offset += len(line)
                forgotten.finish_line()
        finally:
            reached = cursor_at(file, offset)._replace(last_turn=forgotten.finished())
            self._cursors.write(transcript, reached)
        return True

    def _put_line(self, transcript: Transcript, line: bytes, forgotten: ForgottenTurns) -> bool:
        """Put the turn of a line, if it has one; return whether it needs no further try."""
        try:
            turn = read_turn(self._target.coding_agent, line, transcript.session)
        except ValueError as error:
            self._report(f"a line of {transcript.path!r} was skipped: {error}")
            return True
        if turn is None:
            return True
        for request in episodes_of(turn, self._target.user, self._target.agent):
            if forgotten.leaves_out(request):
                continue
            answer = self._remember(request)
            if not answer.problem:
                withdrawals = [*forgotten.take_back(request, answer)]
                answer = next(filter(_failed, map(self._remember, withdrawals)), answer)
            if _failed(answer):
                return False
        return True

    def _remember(self, request: dict[str, Any]) -> Answer:
        answer = call_daemon(self._target.state_dir, "remember", request)
        if answer.problem:
            self._report(answer.problem)
        return answer


def _failed(answer: Answer) -> bool:
    """Return whether a call failed, and may succeed later."""
    return bool(answer.problem) and not answer.final
