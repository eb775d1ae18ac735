"""Texts that an attacker may store, and the check that a page shows them as text.

Each text that is read as HTML, as a link or as a template leaves a trace: it sets a variable of the
page, makes an element with the attribute ``data-hostile``, or opens a dialog.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import httpx

from tests.support.browser import Visit

RAN = "slumberdHostileRan"
"""The variable that a hostile script sets."""

_SET = f"window.{RAN}=1;alert(1)"
_SCRIPT = f"<script data-hostile>{_SET}</script>"
_IMAGE = f"<img data-hostile src=x onerror={_SET}>"


def marker_of(name: str) -> str:
    """Return the words by which a hostile text is found on a page; only letters and a hyphen."""
    return f"hostile-{name}"


def _marked(texts: Mapping[str, str]) -> dict[str, str]:
    """Return texts with their markers: they stand where ``@`` is, or at the beginning."""
    return {
        name: text.replace("@", marker_of(name)) if "@" in text else f"{marker_of(name)} {text}"
        for name, text in texts.items()
    }


HOSTILE = _marked(
    {
        "script": _SCRIPT,
        "event": _IMAGE,
        "drawing": f"<svg data-hostile onload={_SET}>",
        "frame": f"<iframe data-hostile srcdoc='{_SCRIPT}'></iframe>",
        "form": "<form data-hostile action=//other.example><button>Sign in</button></form>",
        "base": "<base data-hostile href=//other.example/>",
        "refresh": "<meta data-hostile http-equiv=refresh content='0;url=//other.example'>",
        "stylesheet": "<style data-hostile>body { display: none }</style>",
        "link": f"javascript:{_SET}//@",
        "spaced link": f" jAvA\tscript:{_SET}//@",
        "document": f"data:text/html,{_SCRIPT}@",
        "attribute": f'" data-hostile autofocus onfocus="{_SET}" x="',
        "quoted": f"' data-hostile autofocus onfocus='{_SET}' x='",
        "unquoted": f" data-hostile autofocus onfocus={_SET} ",
        "quotes": "\"double\" 'single' `back` \\ & < >",
        "title": f"</title>{_SCRIPT}",
        "field": f"</textarea></select></option>{_IMAGE}",
        "style": f"</style>{_SCRIPT}",
        "code": f"</script>{_SCRIPT}",
        "drawn": f"</text></svg>{_IMAGE}",
        "comment": f"--><!-- -->{_IMAGE}<!--",
        "section": f"]]>{_IMAGE}<![CDATA[",
        "entity": "&lt;b&gt; &amp;amp; &#60;script&#62; &copy",
        "escaped": "%3Cscript%3E ..%2f..%2fetc ?a=b&c=d#e;f",
        "path": "../../../etc/passwd",
        "template": "{{ 7*7 }} {% raw %} {# x #} ${7*7} #{7*7} <%= 7*7 %>",
        "format": "%s %(name)s {0} {name!r} {0.__class__}",
        "control": "\x01\x08\x0b\x1b[31mred\x1b[0m\x7f\x85 end",
        "lines": "one\r\nSet-Cookie: a=b\r\n\r\ntwo\u2028three\u2029four",
        "reversed": "\u202eesrever\u202c \u2066\u200fisolated\u2069",
        "invisible": "a\u200bb\u00adc\ufeffd\u2060e",
        "word": "w" * 5_000,
        "combined": "a" + "\u0301" * 300,
        "large": "many words in one text " * 4_347,
        "emoji": "👩‍👩‍👧‍👦 🏳️‍🌈 👍🏽 🇵🇹",
        "unassigned": "\ue000 \U000f0000 \ufffe \ufffd",
        "formula": '=HYPERLINK("//other.example","a")',
    }
)
"""Hostile texts by name; none has more than 100,000 characters, or NUL."""

_NAME_CHARACTERS = 400


def hostile_name(name: str) -> str:
    """Return a hostile text as the name of a user, an agent or a session: printable and short."""
    text = "".join(character for character in HOSTILE[name] if character.isprintable())
    return text[:_NAME_CHARACTERS]


def hostile_episode(name: str, user: str | None = None) -> dict[str, Any]:
    """Return the request that remembers a hostile text in each place that takes one.

    Args:
        name: The name of the text.
        user: The user; by default the hostile text itself.
    """
    short = hostile_name(name)
    return {
        "text": HOSTILE[name],
        "triples": [{"subject": short, "predicate": short, "object": HOSTILE[name]}],
        "id": f"{short} of {user}" if user else short,
        "user": user or short,
        "agent": short,
        "session": short,
        "speaker": short,
        "metadata": {short: HOSTILE[name]},
    }


def put_hostile_episodes(client: httpx.Client, user: str | None = None) -> None:
    """Remember every hostile text as an operator, and wait until its facts are there.

    Args:
        client: A client of the daemon, who may name any user.
        user: The user of all; by default each text is the name of its own user.
    """
    for name in HOSTILE:
        answer = client.post("/v1/episodes", json=hostile_episode(name, user))
        assert answer.is_success, (name, answer.text)
    # A rule reads episodes in order, so this one is evaluated after all others.
    last = {"text": "the last one", "id": f"after the texts of {user}", "user": "nobody"}
    client.post("/v1/episodes", json=last).raise_for_status()
    waiting = {"user": "nobody", "seconds": 60}
    assert client.get(f"/v1/outcomes/{last['id']}", params=waiting).json()["settled"]


def check_hostile_texts(visit: Visit, names: Iterable[str] = (), *, whole: bool = False) -> None:
    """Check that no hostile text did anything on the page that is open.

    A dialog, a failing script and a request to another origin fail at the end of the visit.

    Args:
        visit: The visit of the page.
        names: The names of texts that the page must show.
        whole: Whether it must show all of each text, and not only its beginning.
    """
    page = visit.page
    assert page.evaluate(f"() => window.{RAN}") is None, f"a script ran on {page.url}"
    made = page.locator("[data-hostile], [onfocus], [onerror], [onload]").count()
    assert not made, f"{made} elements of {page.url} come from a hostile text"
    links = page.locator("[href], [src], [action]").evaluate_all(_LINKS)
    assert not links, f"{page.url} links to {links}"
    shown = _plain(page.locator("body").inner_text())
    for name in names:
        wanted = HOSTILE[name] if whole else marker_of(name)
        assert _plain(wanted) in shown, f"{page.url} does not show the hostile text {name!r}"


_LINKS = """
elements => elements
  .map(one => one.href?.baseVal ?? one.href ?? one.src ?? one.action)
  .filter(link => /^(javascript|data|vbscript):/i.test(link)
    || /^[a-z]+:[/][/][^/?#]*other[.]example/i.test(link))
  .filter(link => !/^data:image/.test(link))
"""


def _plain(text: str) -> str:
    """Return a text with one space for what browsers show as space, and no other controls."""
    return " ".join("".join(c if c.isprintable() else " " for c in text).split())
