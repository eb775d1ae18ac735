"""The pages of the documentation: their blocks of code, and how these are run.

A comment directly above a block says what the test does with it::

    <!-- run -->              run it, as bash or Python; with `run: exit 1` it ends with 1
    <!-- output -->           what the block before prints; a line `...` matches any lines
    <!-- file: PATH -->       write it there
    <!-- not run: REASON -->  leave it out
    <!-- begins with: quickstart -->  anywhere: the page goes on in a folder that the README's
                              blocks have run in
    <!-- begins with: PAGE -->        anywhere: the page goes on from another page
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from tests.support.forked_commands import words_of_program
from tests.support.repository import ROOT
from tests.support.waiting import PATIENCE_SECONDS

DOCS = ROOT / "docs"
README = ROOT / "README.md"
PAGES = [README, *sorted(DOCS.rglob("*.md"))]

_BLOCK = re.compile(
    r"^(?:<!-- (?P<mark>[a-z ]+?)(?:: (?P<argument>[^\n]*?))? -->\n)?"
    r"```(?P<language>\w*)\n(?P<text>.*?)^```$",
    re.DOTALL | re.MULTILINE,
)
_BEGINS = re.compile(r"^<!-- begins with: ([\w./-]+) -->$", re.MULTILINE)
_SEPARATOR = "\x1e"


class Block(NamedTuple):
    """One fenced block of a page.

    Attributes:
        place: Its page and line.
        language: Of the fence; may be empty.
        mark: What becomes of it; empty when nothing says so.
        argument: What follows the mark's colon.
        text: What is in it.
    """

    place: str
    language: str
    mark: str
    argument: str
    text: str


def blocks_of(page: Path, text: str = "") -> list[Block]:
    """Return the fenced blocks of a page, in order; with `text`, as if that were the page's."""
    text = text or page.read_text("utf-8")
    return [
        Block(
            f"{page.relative_to(ROOT)}:{text.count(chr(10), 0, found.start()) + 1}",
            found["language"],
            found["mark"] or "",
            found["argument"] or "",
            found["text"],
        )
        for found in _BLOCK.finditer(text)
    ]


def beginning_of(page: Path) -> str:
    """Return what a page goes on from; empty when it begins with nothing."""
    found = _BEGINS.search(page.read_text("utf-8"))
    return found[1] if found else ""


def check_page(page: Path, folder: Path, *, text: str = "") -> None:
    """Run the marked blocks of a page in a folder, and check that each does what the page says.

    Args:
        page: The page.
        folder: Where the README has run, when the page begins with the quickstart; else empty.
        text: The text of the page; its own when it is left out.
    """
    before = beginning_of(page)
    blocks = [*_blocks_before(before), *blocks_of(page, text)]
    ours = [block for block in blocks if block.mark in ("run", "file")]
    assert ours, f"{page}: nothing to run"
    done = subprocess.run(
        ["/bin/bash", "-e", "-c", "".join(_commands(ours))],
        cwd=folder,
        env=environment(folder) | _configured(before, folder),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
    )
    printed = dict(_outputs(done.stdout))
    last = ours[max(printed, default=0)].place
    assert done.returncode == 0, f"{last}: exit code {done.returncode}\n{done.stdout}{done.stderr}"
    for block, shown in _shown(blocks):
        _compare(shown, printed[ours.index(block)])


def _configured(before: str, folder: Path) -> dict[str, str]:
    config = str(folder / "mind" / "slumberd.yaml")
    return {"SLUMBERD_CONFIG": config} if before == "quickstart" else {}


def _blocks_before(name: str) -> list[Block]:
    if name in ("", "quickstart"):
        return []
    page = DOCS / name
    earlier = [*_blocks_before(beginning_of(page)), *blocks_of(page)]
    return [block for block in earlier if block.mark in ("run", "file")]


def environment(folder: Path) -> dict[str, str]:
    """Return variables with which `slumberd` and `python3` are ours, and nothing is configured."""
    home = folder.parent / f"{folder.name}-bin"
    home.mkdir(exist_ok=True)
    for name, words in (("slumberd", words_of_program()), ("python3", [sys.executable])):
        (home / name).write_text(f'#!/bin/sh\nexec {shlex.join(words)} "$@"\n')
        (home / name).chmod(0o755)
    ours = {k: v for k, v in os.environ.items() if not k.startswith("SLUMBERD_")}
    return {**ours, "HOME": str(folder), "PATH": f"{home}:{os.environ['PATH']}"}


def _commands(blocks: Sequence[Block]) -> Iterator[str]:
    """Yield a piece of shell for each block; what it prints begins with its number."""
    for number, block in enumerate(blocks):
        yield f"printf '\\036%d\\n' {number}\n"
        if block.mark == "file":
            path = shlex.quote(block.argument)
            yield f"mkdir -p $(dirname {path})\n"
            yield f"cat >{path} <<'END OF FILE'\n{block.text}END OF FILE\n"
        else:
            text = block.text
            if block.language == "python":
                text = f"python3 - <<'END OF BLOCK'\n{text}END OF BLOCK\n"
            yield _expecting(block.argument.removeprefix("exit "), text)


def _expecting(code: str, text: str) -> str:
    if not code:
        return text
    return f'set +e\n(set -e\n{text})\ncode=$?\nset -e\ntest "$code" = {code}\n'


def _outputs(printed: str) -> Iterator[tuple[int, str]]:
    for piece in printed.split(_SEPARATOR)[1:]:
        number, _, text = piece.partition("\n")
        yield int(number), text


def _shown(blocks: Sequence[Block]) -> Iterator[tuple[Block, Block]]:
    """Yield each block that is run and whose output is shown, with the block that shows it."""
    ran = None
    for block in blocks:
        if block.mark == "run":
            ran = block
        elif block.mark == "output":
            assert ran is not None, f"{block.place}: shows the output of nothing"
            yield ran, block


def _compare(shown: Block, printed: str) -> None:
    lines = [
        ".*" if line == "...\n" else re.escape(line).replace(re.escape("..."), "[^\n]*")
        for line in shown.text.splitlines(keepends=True)
    ]
    found = re.search(rf"(?:\A|\n){''.join(lines)}\Z", printed, re.DOTALL)
    assert found, f"{shown.place} shows\n{shown.text}\nbut this is printed:\n{printed}"
