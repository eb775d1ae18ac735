"""Write the Python programs of the documentation into a directory, for type checkers.

``python -m tests.support.documented_programs DIRECTORY``
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

from tests.support.documentation import PAGES, blocks_of


def write_programs(directory: Path) -> list[Path]:
    """Write each program that the pages run, and each module that they make; return the files."""
    directory.mkdir(parents=True, exist_ok=True)
    written = []
    for page in PAGES:
        for block in blocks_of(page):
            if block.language == "python" and block.mark in ("run", "file"):
                name = block.argument or re.sub(r"\W+", "_", block.place) + ".py"
                written.append(directory / name)
                written[-1].parent.mkdir(exist_ok=True)
                written[-1].write_text(block.text, encoding="utf-8")
    return written


if __name__ == "__main__":
    write_programs(Path(sys.argv[1]))
