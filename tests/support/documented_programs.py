"""Write the Python programs of the documentation into a directory, for type checkers.

``python -m tests.support.documented_programs DIRECTORY``
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

from tests.support.documentation import PAGES, blocks_of


def write_programs(directory: Path) -> list[Path]:
    """Write each program that the pages run into a file of its own, and return the files."""
    directory.mkdir(parents=True, exist_ok=True)
    written = []
    for page in PAGES:
        for block in blocks_of(page):
            if (block.language, block.mark) == ("python", "run"):
                name = re.sub(r"\W+", "_", block.place)
                written.append(directory / f"{name}.py")
                written[-1].write_text(block.text, encoding="utf-8")
    return written


if __name__ == "__main__":
    write_programs(Path(sys.argv[1]))
