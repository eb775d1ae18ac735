"""Make the addresses of pages. Names stand in the query, because they may hold any character."""

from __future__ import annotations

from collections.abc import Mapping
from contextvars import ContextVar
from typing import Any
from urllib.parse import urlencode

ROOT = "/console"
"""The path of the console."""

Fields = Mapping[str, str]

shown_shard: ContextVar[int | None] = ContextVar("shown_shard", default=None)
"""The shard that the page of this request shows; None where there is one only."""


def link(page: str, **fields: Any) -> str:
    """Return the address of a page.

    Args:
        page: Its path without the root, such as ``facts``.
        fields: The query; a field of None, or of an empty text, is left out. The shard is that of
            the page that has the link, unless it is given.
    """
    fields = {**fields, "shard": fields.get("shard", shown_shard.get())}
    given = {name: value for name, value in fields.items() if value not in (None, "")}
    query = urlencode(given, doseq=True)
    return f"{ROOT}/{page.lstrip('/')}" + (f"?{query}" if query else "")


def is_own(address: str) -> bool:
    """Return whether an address is one of the console's pages, and nothing else."""
    return address.startswith(f"{ROOT}/") and "//" not in address and "\\" not in address
