"""Take the figures of a year into the documentation: ``python -m tests.year FILE``.

``python -m tests.bench year --keep DIR`` measures a year, and writes the file ``DIR/year.json``.
This command copies it to ``tests/year/figures.json``, draws ``docs/project/year.svg``, and prints
each law that the figures break. Without FILE it draws the figures that are there.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from tests.year.figures import FIGURES, PICTURE, draw, laws, read_figures


def main() -> None:
    """Draw the figures that the command line names."""
    parser = argparse.ArgumentParser(prog="python -m tests.year", description=__doc__)
    parser.add_argument("file", type=Path, nargs="?", default=FIGURES, metavar="FILE")
    figures = read_figures(parser.parse_args().file)
    figures.write(FIGURES)
    PICTURE.write_text(draw(figures), "utf-8")
    for law in laws(figures):
        if law.value > law.most:
            print(f"broken: {law.name}: {law.value:.3g} {law.unit}, at most {law.most:g}")


if __name__ == "__main__":
    main()
