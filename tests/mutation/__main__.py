"""Plant random faults, and see which of them the tests catch: ``python -m tests.mutation``.

Each fault changes one place of slumberd, in a copy of the checkout: an operator, a condition, a
constant, an argument, a statement, or a part of an SQL statement. The default tests that run the
place run on the copy until one fails. With ``--all``, the survivors then meet the tests that
``pytest --all`` adds. A first run of each tier records which tests run which lines.

Stop it at any time; the same command goes on. A fault that changes no behaviour is judged once:
``--equivalent ID=REASON``.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import sys
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from queue import SimpleQueue
from tempfile import mkdtemp
from typing import Any

from tests.mutation.copies import TreeCopy, digest_of_source
from tests.mutation.faults import Fault, placed, sample
from tests.mutation.recorded import Recorded, RecordedTest, is_current, load, record
from tests.mutation.results import Results
from tests.mutation.selection import Package
from tests.mutation.trial import Trial, try_fault
from tests.support.repository import ROOT

_NICE = 15
_DEFAULT, _ALL = "default", "all"
"""The tiers of the tests; the second one has only the tests that it adds."""


class Campaign:
    """Tries faults on some copies at a time."""

    def __init__(
        self, results: Results, tier: str, recorded: Recorded, options: argparse.Namespace
    ) -> None:
        self._results = results
        self._tier = tier
        self._recorded = recorded
        self._package = Package.read(ROOT)
        self._also = [RecordedTest(name, 60.0) for name in options.also]
        self._most_seconds: float = options.most_seconds
        self._copies: SimpleQueue[TreeCopy] = SimpleQueue()
        self._lock = threading.Lock()
        self._ended = threading.Event()

    def run(self, faults: list[Fault], folder: Path, workers: int) -> None:
        """Try faults, and write each result at once; an interrupt ends all processes."""
        copies = [TreeCopy(ROOT, folder / str(number)) for number in range(workers)]
        for copy in copies:
            self._copies.put(copy)
        with ThreadPoolExecutor(workers) as pool:
            try:
                list(pool.map(self._try, faults))
            finally:
                self._ended.set()
                for copy in copies:
                    copy.end_processes()

    def _try(self, fault: Fault) -> None:
        if self._ended.is_set():
            return
        with self._lock:
            lines, name = self._package.lines_of(fault), self._package.name_of(fault)
            tests = self._recorded.tests_of(lines, fault.path, name)
            first = self._recorded.tests_of_statements(self._package.statements_at(fault))
            if self._package.is_definition(fault):
                first = self._recorded.tests_of_definitions()
            tests = list(dict.fromkeys([*first, *tests]))
        copy = self._copies.get()
        try:
            words = ["--all"] if self._tier == _ALL else []
            trial = try_fault(
                copy, fault, [*self._also, *within_limit(tests, self._most_seconds)], words
            )
        finally:
            self._copies.put(copy)
        if not self._ended.is_set():
            self._write(fault, trial, len(tests))

    def _write(self, fault: Fault, trial: Trial, tests: int) -> None:
        tried = {"tier": self._tier, "tests": tests, **asdict(trial)}
        with self._lock:
            self._results.add({**fault.stored, **tried})
        place = f"{fault.id} {fault.path}:{fault.line}"
        print(f"{self._tier}: {trial.outcome} {place} {trial.by}", flush=True)


def within_limit(tests: Sequence[RecordedTest], seconds: float) -> list[RecordedTest]:
    """Return the tests that fit into a time, in their order; others are left out."""
    chosen: list[RecordedTest] = []
    for test in tests:
        if test.seconds <= seconds:
            seconds -= test.seconds
            chosen.append(test)
    return chosen


def main() -> None:
    """Measure as the command line says."""
    options = options_from(sys.argv[1:])
    results = Results(options.resume)
    if options.equivalent:
        for judgement in options.equivalent:
            results.judge(*judgement.split("=", 1))
    elif not options.report:
        with suppress(KeyboardInterrupt):
            _measure(results, options)
    print(Results(options.resume).report())


def options_from(words: Sequence[str]) -> argparse.Namespace:
    """Read the words of a command line."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.mutation",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("--count", type=int, default=300, help="how many faults")
    add("--seed", type=int, default=1, help="of the random choices")
    add("--only", action="append", default=[], help="files whose path begins so, repeatable")
    add("--faults", type=Path, help="plant those of this file; without it, write the sample there")
    add("--all", action="store_true", help="then try survivors with the tests that --all adds")
    add("--resume", type=Path, default=Path("mutation.jsonl"), help="the file of results")
    add("--report", action="store_true", help="only print what the file of results says")
    add("--retry", action="store_true", help="try the survivors again")
    add("--also", action="append", default=[], help="with it: a new test that runs first")
    add("--equivalent", action="append", metavar="ID=REASON", help="judge a survivor")
    add("--record", action="store_true", help="record the tests again, as after a new test")
    add("--workers", type=int, default=2, help="how many copies at a time")
    add("--most-seconds", type=float, default=240, help="of tests for one fault")
    return parser.parse_args(words)


def _measure(results: Results, options: argparse.Namespace) -> None:
    os.nice(_NICE)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    results.begin({"seed": options.seed, "only": options.only, "source": digest_of_source(ROOT)})
    # The socket of a test must not have a long path.
    folder = Path(mkdtemp(prefix="mut-"))
    folder.chmod(0o755)  # some tests import modules of the copy as another user
    try:
        for tier in (_DEFAULT, _ALL) if options.all else (_DEFAULT,):
            if chosen := faults_to_try(results, tier, options):
                recorded = _recording(tier, folder, options)
                Campaign(results, tier, recorded, options).run(chosen, folder, options.workers)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def faults_to_try(results: Results, tier: str, options: argparse.Namespace) -> list[Fault]:
    """Return the faults to try with the tests of a tier, and note those whose place is gone."""
    if tier == _ALL:
        stored = list(results.survivors(_DEFAULT).values())
    elif options.retry:
        stored = list(results.survivors().values())
    else:
        stored = [fault for fault in sampled(options) if fault["id"] not in results.tried()]
    chosen: list[Fault] = []
    for one in stored:
        if fault := placed(ROOT, one):
            chosen.append(fault)
        else:
            results.add({**one, "outcome": "gone"})
    return chosen


def sampled(options: argparse.Namespace) -> list[dict[str, Any]]:
    """Return the faults of a file, or a sample; the file gets the sample if it does not exist."""
    file: Path | None = options.faults
    if file and file.exists():
        return [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
    stored = [fault.stored for fault in sample(ROOT, options.count, options.seed, options.only)]
    if file:
        file.write_text("".join(f"{json.dumps(fault)}\n" for fault in stored), encoding="utf-8")
    return stored


def _recording(tier: str, folder: Path, options: argparse.Namespace) -> Recorded:
    """Return the recording of a tier; make it, or go on with it, if it is not complete."""
    default = options.resume.with_suffix(".lines").absolute()
    lines = default if tier == _DEFAULT else default.with_name(f"{default.name}-all")
    if options.record and lines.exists():
        shutil.rmtree(lines)
    if not is_current(ROOT, lines):
        print(f"recording which tests run which lines, tier {tier}", file=sys.stderr)
        copy, before = TreeCopy(ROOT, folder / tier[0]), default if tier == _ALL else None
        record(ROOT, copy, lines, options.workers, default=before)
        print("recorded", file=sys.stderr)
    return load(lines)


if __name__ == "__main__":
    main()
