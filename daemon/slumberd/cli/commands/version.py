"""`slumberd version`: show the version. It imports little: scripts call it often."""

from __future__ import annotations

import platform

from slumberd import __version__
from slumberd.cli.options import Json
from slumberd.cli.output import print_json


def version(json: Json = False) -> None:
    """Show the version of slumberd, and of the Python that runs it."""
    if json:
        print_json({"version": __version__, "python": platform.python_version()})
    else:
        print(f"slumberd {__version__} (Python {platform.python_version()})")
