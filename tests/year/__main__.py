"""Take the figures of a year into the documentation: ``python -m tests.year FILE``.

``python -m tests.bench year --keep DIR`` measures a year, and writes the file ``DIR/year.json``.
This command copies it to ``tests/year/figures.json``, draws ``docs/project/year.svg``, writes the
table of ``docs/project/benchmarks.md``, and prints each law that the figures break. Without FILE it
does so with the figures that are there.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from tests.year.figures import FIGURES, PAGE, PICTURE, draw, laws, read_figures, table

BEGIN, END = "<!-- begin of the year -->", "<!-- end of the year -->"


def main() -> None:
    """Draw the figures that the command line names."""
    parser = argparse.ArgumentParser(prog="python -m tests.year", description=__doc__)
    parser.add_argument("file", type=Path, nargs="?", default=FIGURES, metavar="FILE")
    figures = read_figures(parser.parse_args().file)
    figures.write(FIGURES)
    PICTURE.write_text(draw(figures), "utf-8")
    before, begin, rest = PAGE.read_text("utf-8").partition(BEGIN)
    _, end, after = rest.partition(END)
    PAGE.write_text(f"{before}{begin}\n\n{table(figures)}\n\n{end}{after}", "utf-8")
    for law in laws(figures):
        if law.value > law.most:
            print(f"broken: {law.name}: {law.value:.3g} {law.unit}, at most {law.most:g}")


if __name__ == "__main__":
    main()
