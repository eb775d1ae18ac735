"""Name the commands of this installation: the program, and what installs an extra into it."""

from __future__ import annotations

import json
import re
import shutil
import sys
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from shlex import quote
from urllib.parse import unquote, urlsplit

PACKAGE = "slumberd"
_INSTALL = re.compile(r"`pip install 'slumberd\[(\w+)\]'`")


def name_own_pip(message: str) -> str:
    """Return a message in which the command that installs an extra does so in this installation."""
    return _INSTALL.sub(lambda found: f"`{install_command(found[1])}`", message)


def install_command(extra: str) -> str:
    """Return the command that installs an extra of slumberd where this process runs.

    It is the pip of this environment, and the local project if slumberd was installed from one.
    """
    return f"{_program('pip')} install {_requirement(extra)}"


def own_program() -> str:
    """Return how to call slumberd: by its name, or by its path if the name finds another one."""
    return _program(PACKAGE)


def _program(name: str) -> str:
    """Return a program of this environment: its name where the shell finds it, else its path."""
    own = Path(sys.prefix, "bin", name)
    found = shutil.which(name)
    # Without a program of its own, the environment leaves the choice to the shell.
    if not own.exists() or (found is not None and Path(found).resolve() == own.resolve()):
        return name
    return quote(_shown(own))


def _requirement(extra: str) -> str:
    try:
        recorded = json.loads(distribution(PACKAGE).read_text("direct_url.json") or "{}")
    except (PackageNotFoundError, ValueError, OSError):
        recorded = {}
    url = urlsplit(recorded.get("url", ""))
    directory = Path(unquote(url.path))
    if url.scheme != "file" or not directory.is_dir():
        return f"'{PACKAGE}[{extra}]'"
    place = "." if directory == Path.cwd() else str(directory)
    editable = "-e " if recorded.get("dir_info", {}).get("editable") else ""
    return editable + "'" + f"{place}[{extra}]".replace("'", "'\\''") + "'"


def _shown(path: Path) -> str:
    """Return a path, from the working directory if it lies there."""
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else str(path)
