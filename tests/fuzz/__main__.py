"""Fuzz one target, led by coverage: ``python -m tests.fuzz TARGET [--seconds N] [--keep DIR]``.

Needs ``pip install -e '.[fuzz]'``. Exits with another code than 0 on a finding, which is printed
and saved in the directory where it runs.
"""

from __future__ import annotations

import argparse
import hashlib
import sys
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

import atheris

with atheris.instrument_imports(include=["slumberd"]):
    from tests.fuzz.control import ControlTarget
    from tests.fuzz.filter import FilterTarget
    from tests.fuzz.http import HttpTarget
    from tests.fuzz.mcp import McpTarget
    from tests.fuzz.rows import RowTarget
    from tests.fuzz.rules import RuleTarget
    from tests.fuzz.targets import Target, corpus
    from tests.fuzz.traces import TraceTarget

TARGETS: dict[str, Callable[[], Target]] = {
    "control": ControlTarget,
    "filter": FilterTarget,
    "http": HttpTarget,
    "mcp": McpTarget,
    "rows": RowTarget,
    "rules": RuleTarget,
    "traces": TraceTarget,
}
_LONGEST = 8_300


def main() -> None:
    """Fuzz as the command line says."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("target", choices=sorted(TARGETS), nargs="?")
    parser.add_argument("--list", action="store_true", help="the targets, one a line")
    parser.add_argument("--seconds", type=int, default=20, help="how long")
    parser.add_argument("--keep", type=Path, help="a directory for what widens the coverage")
    options = parser.parse_args()
    if options.list or not options.target:
        print("\n".join(sorted(TARGETS)))
        return
    with TemporaryDirectory(prefix="slumberd-corpus-") as seeds:
        target = TARGETS[options.target]()
        _sow(Path(seeds), target, options.target)
        # libFuzzer adds to the first directory.
        folders = [seeds]
        if options.keep:
            options.keep.mkdir(parents=True, exist_ok=True)
            folders = [str(options.keep), seeds]
        words = Path(seeds, "words")
        words.write_text("".join(f'"{word}"\n' for word in target.words()), encoding="ascii")
        limits = [f"-max_total_time={options.seconds}", f"-max_len={_LONGEST}", "-timeout=30"]
        arguments = [*limits, "-rss_limit_mb=4096", f"-dict={words}", *folders]
        atheris.Setup([sys.argv[0], *arguments], _reporting(target))
        atheris.Fuzz()


def _sow(folder: Path, target: Target, name: str) -> None:
    saved = [file.read_bytes() for file in corpus(name)]
    for number, seed in enumerate([*target.seeds(), *saved]):
        (folder / f"{number:04}").write_bytes(seed)


def _reporting(target: Target) -> Callable[[bytes], None]:
    def run_once(given: bytes) -> None:
        try:
            target.run_once(given)
        except Exception:
            saved = Path(f"finding-{hashlib.sha256(given).hexdigest()[:12]}")
            saved.write_bytes(given)
            print(f"finding: {given!r}, saved as {saved}", flush=True)
            raise

    return run_once


if __name__ == "__main__":
    main()
