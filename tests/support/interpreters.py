"""Find another Python on this machine."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path


def find_python(version: str) -> str | None:
    """Return a Python that runs and can make environments; None without one.

    Args:
        version: As ``3.12``.
    """
    home = Path.home()
    found: list[str | Path | None] = [shutil.which(f"python{version}")]
    found += [*home.glob(f".pyenv/versions/{version}.*/bin/python")]
    found += [*home.glob(f".local/share/uv/python/cpython-{version}.*/bin/python{version}")]
    # A version manager may put a script on PATH that does not run, so each candidate is run.
    return next((str(path) for path in found if path and _runs(str(path), version)), None)


def _runs(python: str, version: str) -> bool:
    command = [python, "-c", "import ensurepip, sys; print('%d.%d' % sys.version_info[:2])"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.stdout.strip() == version
