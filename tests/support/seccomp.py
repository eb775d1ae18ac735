"""A process that the kernel kills when it opens an Internet socket, native code included."""

from __future__ import annotations

import platform
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.waiting import PATIENCE_SECONDS

_SOCKET_CALL = {"x86_64": 41, "aarch64": 198}.get(platform.machine())

_FORBID = f"""
import asyncio, ctypes, socket, struct, sys
from pathlib import Path
from slumberd.workers.graph.ladybug_store import LadybugGraphStore

LOAD, EQUAL, RETURN = 0x20, 0x15, 0x06
ALLOW, KILL_PROCESS = 0x7FFF0000, 0x80000000
NUMBER, FIRST_ARGUMENT = 0, 16
program = [
    (LOAD, 0, 0, NUMBER), (EQUAL, 0, 4, {_SOCKET_CALL}), (LOAD, 0, 0, FIRST_ARGUMENT),
    (EQUAL, 1, 0, socket.AF_INET), (EQUAL, 0, 1, socket.AF_INET6),
    (RETURN, 0, 0, KILL_PROCESS), (RETURN, 0, 0, ALLOW),
]
code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *step) for step in program))
# The form of struct sock_fprog: how many instructions, and where they are.
filters = struct.pack("HP", len(program), ctypes.addressof(code))
kernel = ctypes.CDLL(None, use_errno=True)
assert kernel.prctl(38, 1, 0, 0, 0) == 0, "no PR_SET_NO_NEW_PRIVS"
assert kernel.prctl(22, 2, filters, 0, 0) == 0, "no PR_SET_SECCOMP"
"""


def without_network(code: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run Python code, to which `sys.argv[1]` names a file that is not there yet.

    The test is skipped where the kernel filters no system calls.
    """
    done = subprocess.run(
        [sys.executable, "-c", _FORBID + code, str(folder / "graph.lbug")],
        capture_output=True, text=True, check=False, timeout=PATIENCE_SECONDS,
    )  # fmt: skip
    if _SOCKET_CALL is None or "no PR_SET" in done.stderr:
        pytest.skip("the kernel filters no system calls here")
    return done
