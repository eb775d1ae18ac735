"""Limits of the numbers and the input that the command line accepts."""

from __future__ import annotations

import io
import os
from pathlib import Path

import pytest

from slumberd.cli import jsonl
from slumberd.cli.commands.verify import Verification
from slumberd.integrations.interchange.episode_lines import read_episode_lines
from slumberd.model.record import Break
from tests.support.builders import episode
from tests.support.cli_runner import called

pytestmark = pytest.mark.unit


@pytest.mark.slow
@pytest.mark.parametrize(
    "words",
    [
        pytest.param(("facts", "--limit", "0"), id="facts"),
        pytest.param(("facts", "--min-confidence", "1.1"), id="confidence above 1"),
        pytest.param(("facts", "--max-confidence", "-0.1"), id="confidence below 0"),
        pytest.param(("audit", "ls", "--limit", "0"), id="audit"),
        pytest.param(("recent", "alice", "--limit", "0"), id="recent"),
        pytest.param(("next", "-n", "0"), id="next, none"),
        pytest.param(("next", "-n", "101"), id="next, too many"),
    ],
)
def test_number_out_of_its_range_is_wrong_use(tmp_path: Path, words: tuple[str, ...]) -> None:
    done = called(*words, "--state-dir", str(tmp_path))

    assert done.returncode == 64
    assert words[-2] in done.stderr


def test_next_shows_the_requested_number_of_instants() -> None:
    done = called("next", "--cron", "0 3 * * *", "-n", "100")

    assert done.returncode == 0, done.stderr
    assert sum("03:00" in line for line in done.stdout.splitlines()[1:]) == 100


def test_too_long_line_does_not_affect_the_next_line() -> None:
    good = episode("e2").model_dump_json().encode() + b"\n"
    first = b"x" * len(good) + b"\n"
    stream = io.BytesIO(first + good + b"y" * 3 * len(good) + b"\n" + good)

    lines = list(read_episode_lines(stream, most_bytes=len(good)))

    assert [(line.line, not line.episodes) for line in lines] == [
        (1, True),
        (2, False),
        (3, True),
        (4, False),
    ]


@pytest.mark.parametrize(
    ("verified", "words"),
    [
        (Verification(7, "ab", None, 0, False), "verified: 7 rows, head ab"),
        (Verification(7, "ab", None, 2, False), "verified: 7 rows, head ab, 2 checkpoints agree"),
        (
            Verification(7, "ab", None, 0, True),
            "chain verified, and nothing else: 7 rows, head ab",
        ),
        (Verification(7, "ab", Break(3, "it is odd"), 0, False), "broken at row 3: it is odd"),
        (Verification(7, "ab", Break(0, "it is odd"), 0, False), "broken: it is odd"),
    ],
)
def test_result_of_verify_prints_how_much_was_verified(verified: Verification, words: str) -> None:
    assert verified.words() == words


def test_input_reports_how_many_bytes_were_read(tmp_path: Path) -> None:
    file = tmp_path / "episodes.jsonl"
    file.write_bytes(b"x" * 10)

    with jsonl.open_input(str(file)) as source:
        before = source.position()
        source.stream.read()

        assert (before, source.position(), source.size) == (0, 10, 10)


def test_input_without_a_size_has_no_position(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    writer = os.open(pipe, os.O_RDWR)
    os.write(writer, b"{}\n")
    try:
        with jsonl.open_input(str(pipe)) as source:
            assert source.stream.readline() == b"{}\n"

            assert (source.position(), source.size) == (0, None)
    finally:
        os.close(writer)
