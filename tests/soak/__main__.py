"""Soak a daemon: ``python -m tests.soak SECONDS [--seed N] [--keep DIR]``.

Writers, rules, reloads, manual edits, kills and clock steps run together for SECONDS. Every few
seconds the soak checks the promises; at the end it compares the facts with the oracle. It exits
with a code other than 0 when a promise is broken.
"""

from __future__ import annotations

import argparse
from dataclasses import asdict
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.soak.soak_run import Soak, libfaketime


def main() -> None:
    """Soak as the command line says."""
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description=__doc__)
    parser.add_argument("seconds", type=float)
    parser.add_argument("--seed", type=int, default=1, help="of all random choices")
    parser.add_argument("--keep", type=Path, help="a directory for all of its files")
    options = parser.parse_args()
    if libfaketime() is None:
        print("skipped: clock steps; the package faketime is not installed")
    with TemporaryDirectory(prefix="slumberd-soak-") as spare:
        folder = options.keep or Path(spare)
        folder.mkdir(parents=True, exist_ok=True)
        figures = Soak(folder, seed=options.seed).run(options.seconds)
    for name, value in asdict(figures).items():
        print(f"{name.replace('_', ' '):>20}: {round(value, 1)}")


if __name__ == "__main__":
    main()
