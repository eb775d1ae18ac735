"""Plant one fault in a copy, and see whether a test fails."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from subprocess import TimeoutExpired
from typing import Literal

import pytest

from tests.mutation import chosen
from tests.mutation.copies import TreeCopy
from tests.mutation.faults import Fault
from tests.mutation.recorded import RecordedTest

_START_SECONDS = 60.0
_TEST_SECONDS = 20.0
_SURE_SECONDS = 1.0
"""A busy machine does not fail a test that is quicker."""

Outcome = Literal["caught", "survived"]


@dataclass(frozen=True)
class Trial:
    """What the tests said of a fault.

    Attributes:
        by: The test that failed, or what else ended the run; empty if nothing did.
        why: The end of its message.
        ran: How many tests ran.
    """

    outcome: Outcome
    by: str
    why: str
    ran: int
    seconds: float


@dataclass(frozen=True)
class _Run:
    ran: int
    failed: str
    why: str


def try_fault(
    copy: TreeCopy, fault: Fault, tests: Sequence[RecordedTest], options: Sequence[str] = ()
) -> Trial:
    """Run tests on a copy with a fault until one fails; a slow one must fail twice.

    Args:
        copy: Where to plant the fault.
        fault: The fault.
        tests: Which tests run, in their order.
        options: More options of pytest, as ``--all``.
    """
    began, ran, rest = time.monotonic(), 0, list(tests)
    with copy.changed(fault.path, fault.text):
        while rest:
            run = _run(copy, rest, options)
            ran += run.ran
            if not run.failed or _fails_again(copy, run, rest, options):
                outcome: Outcome = "caught" if run.failed else "survived"
                return Trial(outcome, run.failed, run.why, ran, _since(began))
            names = [test.id for test in rest]
            rest = rest[names.index(run.failed) + 1 :]
    return Trial("survived", "", "", ran, _since(began))


def _since(began: float) -> float:
    return round(time.monotonic() - began, 1)


def _fails_again(
    copy: TreeCopy, run: _Run, tests: Sequence[RecordedTest], options: Sequence[str]
) -> bool:
    """Return whether a failure is no accident of a busy machine."""
    alone = [test for test in tests if test.id == run.failed and test.seconds > _SURE_SECONDS]
    return not alone or run.why == "time limit" or bool(_run(copy, alone, options).failed)


def _run(copy: TreeCopy, tests: Sequence[RecordedTest], options: Sequence[str]) -> _Run:
    plan = copy.folder / "plan.json"
    limits = {test.id: 3 * test.seconds + _TEST_SECONDS for test in tests}
    plan.write_text(json.dumps(limits))
    plan.with_suffix(".result").unlink(missing_ok=True)
    files = dict.fromkeys(test.id.split("::")[0] for test in tests)
    words = ["-m", "pytest", "-p", "tests.mutation.chosen", "-x", "-q", "-n", "0"]
    words += ["-p", "no:langsmith_plugin"]  # it takes a second to start
    words += ["-p", "no:cacheprovider", f"--basetemp={copy.temporary}", *options, *files]
    process = copy.start(*words, **{chosen.PLAN: str(plan)})
    whole = _START_SECONDS + len(files) + 3 * sum(test.seconds for test in tests)
    try:
        output, _ = process.communicate(timeout=whole + _TEST_SECONDS)
    except TimeoutExpired:
        output = b"time limit"
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        copy.end_processes()
    return _result(copy, process.returncode, output.decode(errors="replace"))


def _result(copy: TreeCopy, code: int, output: str) -> _Run:
    with suppress(OSError, ValueError):
        run = _Run(**json.loads((copy.folder / "plan.result").read_text()))
        if run.failed or code == 0:
            return run
    if code == pytest.ExitCode.NO_TESTS_COLLECTED:
        return _Run(0, "", "")  # the cases of a test may depend on what the fault changes
    return _Run(0, "the start of the tests", output[-300:])
