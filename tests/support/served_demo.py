"""A running `slumberd demo --serve`, and people who sign in to it."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx

from tests.support.forked_commands import words_of_program


class Demo:
    """A demo that serves.

    Attributes:
        process: Its process.
        said: What it has printed: the values by the first word of each line.
    """

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self.said: dict[str, str] = {}
        assert process.stdout is not None
        for line in process.stdout:
            name, _, value = line.partition(" ")
            self.said[name] = value.strip()
            if name == "stop":
                break

    @contextmanager
    def browser(self) -> Iterator[httpx.Client]:
        """Yield a client that is signed in."""
        root = self.said["open"].removesuffix("/console/")
        with httpx.Client(base_url=root, follow_redirects=True) as client:
            form = {"token": self.said["token"]}
            client.post("/console/sign-in", data=form, headers={"Origin": root})
            yield client


@contextmanager
def serving_demo(folder: Path, *options: str) -> Iterator[Demo]:
    """Run a demo whose temporary files lie in a directory."""
    command = [*words_of_program(), "demo", "--serve", *options]
    environment = {**os.environ, "TMPDIR": str(folder)}
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment
    ) as process:
        try:
            yield Demo(process)
        finally:
            process.kill()
