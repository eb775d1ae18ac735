"""Render templates, and make the addresses of pages.

Every value is escaped, and control characters are made visible. Names stand in the query of an
address, because they may hold any character.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from datetime import UTC, datetime
from importlib import resources
from typing import Any
from urllib.parse import urlencode

import orjson
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

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


PACKAGE = "slumberd.web.console"
STATIC = {
    "console.css": "text/css; charset=utf-8",
    "console.js": "text/javascript; charset=utf-8",
    "icon.svg": "image/svg+xml",
}
"""The media type of each file that browsers fetch."""

MOST_CHARACTERS = 10_000
"""A longer text is cut; the page says so."""

_HIDDEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]"
)
_HASH_CHARACTERS = 16


def read_static(name: str) -> bytes:
    """Return a file that browsers fetch."""
    return (resources.files(PACKAGE) / "static" / name).read_bytes()


def read_style() -> Markup:
    """Return the stylesheet, for a file that stands alone; the text is our own."""
    return Markup(read_static("console.css").decode())  # noqa: S704


def static_address(name: str) -> str:
    """Return the address of a file; it changes with the content, so browsers may keep the file."""
    version = hashlib.sha256(read_static(name)).hexdigest()[:_HASH_CHARACTERS]
    return f"{ROOT}/static/{version}/{name}"


def show_text(value: object) -> Markup:
    """Return a text of other people: isolated, escaped, and cut when it is too long."""
    text = value if isinstance(value, str) else orjson.dumps(value, default=str).decode()
    cut = "" if len(text) <= MOST_CHARACTERS else f" … ({len(text):,} characters)"
    return show_whole_text(text[:MOST_CHARACTERS]) + escape(cut)


def show_whole_text(text: str) -> Markup:
    """Return a text of other people that its reader needs as a whole: isolated and escaped."""
    shown = _HIDDEN.sub(_spell_out, text)
    return Markup("<bdi>") + escape(shown) + Markup("</bdi>")


def _spell_out(found: re.Match[str]) -> str:
    return f"\\u{ord(found[0]):04x}"


def show_plain(value: str) -> str:
    """Return a text of other people where no element may stand, as in a picture."""
    return _HIDDEN.sub(_spell_out, value[:MOST_CHARACTERS])


def show_instant(value: str | datetime | None) -> Markup:
    """Return an instant in UTC, to the second; nothing for None."""
    if value is None:
        return Markup("&ndash;")
    at = datetime.fromisoformat(value) if isinstance(value, str) else value
    at = at.astimezone(UTC)
    return Markup('<time datetime="{}">{}</time>').format(
        at.isoformat().replace("+00:00", "Z"), f"{at:%Y-%m-%d %H:%M:%S}"
    )


def show_number(value: float) -> str:
    """Return a number with a separator for thousands."""
    return f"{value:,}"


def show_duration(seconds: float | None) -> str:
    """Return a duration in its two largest units."""
    if seconds is None:
        return "\N{EN DASH}"
    left, shown = int(seconds), list[str]()
    for name, size in (("d", 86_400), ("h", 3_600), ("min", 60), ("s", 1)):
        count, left = divmod(left, size)
        if count or (name == "s" and not shown):
            shown.append(f"{count} {name}")
    return " ".join(shown[:2])


def show_shard_field() -> Markup:
    """Return the hidden field by which a form that leads to a page keeps the shard."""
    shard = shown_shard.get()
    if shard is None:
        return Markup()
    return Markup('<input type="hidden" name="shard" value="{}">').format(shard)


class Renderer:
    """Renders the templates of the console.

    Args:
        common: Values that every template may use.
    """

    def __init__(self, common: Mapping[str, Any]) -> None:
        self._environment = Environment(
            loader=PackageLoader(PACKAGE),
            autoescape=True,
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        filters: dict[str, Callable[..., Any]] = {
            "text": show_text,
            "whole_text": show_whole_text,
            "plain": show_plain,
            "instant": show_instant,
            "number": show_number,
            "duration": show_duration,
        }
        self._environment.filters.update(filters)
        self._environment.globals.update(
            link=link,
            shard_field=show_shard_field,
            static={name: static_address(name) for name in STATIC},
            **common,
        )

    def render(self, template: str, values: Mapping[str, Any]) -> str:
        """Return the HTML of a template."""
        return self._environment.get_template(template).render(values)
