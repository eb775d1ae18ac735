"""Read the descriptions of a form's keys from its docstring."""

from __future__ import annotations

import inspect
import re

_SECTION = re.compile(r"\n\nAttributes:\n(.*?)(?:\n\n|\Z)", re.DOTALL)
_ENTRY = re.compile(r"^    (\w+): (.*(?:\n     .*)*)", re.MULTILINE)


def describe_attributes(form: type) -> tuple[str, dict[str, str]]:
    """Return the first line of a docstring, and the description of each attribute."""
    text = inspect.getdoc(form) or ""
    section = _SECTION.search(text)
    entries = _ENTRY.findall(section[1]) if section else []
    return text.partition("\n")[0], {name: " ".join(words.split()) for name, words in entries}
