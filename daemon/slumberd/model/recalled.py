"""Mark texts that were recalled, so that extraction and search leave them out.

An agent that stores its whole prompt as an episode also stores the context in it. That context
begins and ends with the marks of this module.
"""

from __future__ import annotations

import re

BEGIN = "<slumberd-memory>"
END = "</slumberd-memory>"

_BLOCK = re.compile(f"{re.escape(BEGIN)}.*?(?:{re.escape(END)}|\\Z)", re.DOTALL)


def without_recalled(text: str) -> str:
    """Return a text of the same length, with spaces in place of what was recalled.

    A block without an end reaches to the end of the text.
    """
    return _BLOCK.sub(lambda block: " " * len(block.group()), text) if BEGIN in text else text


def strip_recalled(text: str) -> str:
    """Return a text without what was recalled, and without the space around it."""
    # A space keeps the text around a block from becoming another mark.
    return _BLOCK.sub(" ", text).strip()
