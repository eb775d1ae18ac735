"""What commands answer on a PostgreSQL database other than on files: the recorded differences.

Each story of `answer_stories` is told on a database, and compared with its recording on files. The
recording of the differences holds each command whose answer differs. To record them again:

    python -m tests.support.engine_differences && git diff tests/cli/on_postgres
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from difflib import unified_diff
from itertools import zip_longest
from pathlib import Path
from tempfile import TemporaryDirectory

from slumberd.storage.postgres.address import where
from tests.support.answer_stories import STORIES, recorded
from tests.support.postgres_server import running_server
from tests.support.recorded_answers import AnswerRecorder, Form
from tests.support.repository import TESTS
from tests.support.trial_installation import TrialInstallation, rules

FOLDER = TESTS / "cli" / "on_postgres"
_FORMS: tuple[Form, ...] = ("json", "text")
TOLD = [(name, form) for name in ("reading", "nothing", "changes", "rules") for form in _FORMS]
"""The stories that are told on a database. The daemon's has tests of its own."""


def told_on_database(name: str, form: Form, directory: Path, address: str) -> list[str]:
    """Tell a story on an empty database; return the lines of its recording."""
    site = TrialInstallation(directory, rules())
    site.config.write_text(f"{site.config.read_text()}store: {address}\n")
    recorder = AnswerRecorder(site, form, {where(address): "<database>"})
    STORIES[name](site, recorder)
    return "\n".join(recorder.lines).rstrip("\n").splitlines()


def differences(name: str, form: Form, directory: Path, address: str) -> list[str]:
    """Tell a story on an empty database; return how its answers differ from those on files."""
    found = told_on_database(name, form, directory, address)
    return [
        line
        for on_files, on_database in zip_longest(_answers(recorded(name, form)), _answers(found))
        for line in _difference(on_files or [], on_database or [])
    ]


def recorded_differences(name: str, form: Form) -> list[str]:
    """Return the recorded differences of a story."""
    return _file(name, form).read_text().splitlines()


def _answers(lines: Sequence[str]) -> Iterator[list[str]]:
    """Yield the lines of each command with its answer."""
    answer: list[str] = []
    for line in lines:
        if line.startswith("$ ") and answer:
            yield answer
            answer = []
        answer.append(line)
    yield answer


def _difference(on_files: Sequence[str], on_database: Sequence[str]) -> list[str]:
    changes = [
        line
        for line in unified_diff(on_files, on_database, lineterm="", n=0)
        if not line.startswith(("---", "+++", "@@"))
    ]
    return [*on_files[:1], *changes, ""] if changes else []


def _file(name: str, form: Form) -> Path:
    return FOLDER / f"{name}.{form}.txt"


def main() -> None:
    """Record the differences of every story again."""
    with running_server() as server:
        for name, form in TOLD:
            with server.database() as database, TemporaryDirectory() as directory:
                lines = differences(name, form, Path(directory), server.address_of(database))
            _file(name, form).write_text("".join(f"{line}\n" for line in lines))


if __name__ == "__main__":
    main()
