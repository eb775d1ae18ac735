"""Mask tokens, keys and passwords in known forms, before a text becomes an episode.

The library redact-secret keeps the list of forms. The patterns here add what people write in
sentences, and tokens of a known beginning whose length the list does not know.
"""

from __future__ import annotations

import json
import re
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import redact_secret

_LIMITS = redact_secret.WholeInputLimits(max_input_bytes=2**40, max_findings=2**31)
_SHORTEST_NAMED, _LONGEST_NAMED = 4, 1_000
"""How long a value of a key is that is judged together with its key."""

_PIECE = 32_768
_OVERLAP = 8_192
"""The longest secret that the library finds wherever a piece ends."""

_LONGEST_PIN = 8
_SHORTEST_TOKEN = 12

_KEY_BEGINS = "-----BEGIN"
_LEAST_TOKEN = len("sk-") + 16
"""The shortest match of `_TOKEN`, which holds no space."""

_LEAST_NAMED = len("pin=") + _SHORTEST_NAMED
"""The shortest match of `_NAMED`."""

_LONGEST_KEPT = 64
"""The longest key of JSON that is remembered to hold no secret."""

_MASK = re.compile(r"\[masked [a-z0-9_]+\]")

_PREDICATES = {
    "object": "predicate",
    "target": "relationship",
    "destination": "relationship",
    "to": "relationType",
    "target_node_name": "name",
}
"""The keys of objects of triples, each with the key of the predicate, as the known formats have."""

_PRIVATE_KEY = re.compile(
    r"""
    -----BEGIN\ [A-Z0-9 ]{0,40}PRIVATE\ KEY(?: \ BLOCK )?-----
    (?: (?: (?!-----BEGIN). )*? -----END\ [A-Z0-9 ]{0,40}PRIVATE\ KEY(?: \ BLOCK )?-----
        # A key that was cut off: its header, and its lines.
      | (?: (?: \s|\\[nr] ){1,4} (?: [A-Z][A-Za-z-]{1,30}:[^\n]{0,200} | [A-Za-z0-9+/=_-]{16,} ) )*
        (?: (?: \s|\\[nr] ){1,2} [A-Za-z0-9+/]{1,15}={1,2} )? )
    """,
    re.VERBOSE | re.DOTALL,
)
_TOKEN = re.compile(
    r"(?<![A-Za-z0-9])(?:"
    r"(?:sk|rk|gh[oprsu]|github_pat|glpat|xox[abeoprs]|xapp|npm|hf|pypi|shp(?:at|ca|pa|ss)|dop_v1"
    r"|dckr_pat|gsk|xai|whsec|lin_api|ya29)[-_.](?=[A-Za-z_-]{0,80}[0-9])[A-Za-z0-9_-]{16,}"
    r"|(?:AKIA|ASIA)[0-9A-Z]{16}(?![0-9A-Za-z])"
    r"|AGE-SECRET-KEY-1[0-9A-Z]{50,}"
    r"|(?<![A-Za-z0-9_-])eyJ[A-Za-z0-9_-]{8,1000}\.eyJ[A-Za-z0-9_-]{4,1000}\.[A-Za-z0-9_-]{4,}"
    r")"
)
_IN_ADDRESS = re.compile(r"(?<=://)[^\s/:@]{0,100}:(?P<value>[^\s/@$<{\[][^\s/@]{2,200})@")
_NAMED = re.compile(
    r"""
    (?: (?P<password> passwor[dt] | passphrase | passwd | pwd | kennwort
                    | contraseña | mot\ de\ passe )
      | (?P<pin> \bPIN(?:[ -]?code)? )
      | (?: secret(?:[ _-]?access)?(?:[ _-]?key)? | credential | token
          | (?:api|access|account|auth|private|encryption)[ _-]?key ) )
    (?: _\w{0,30} | [0-9]{0,3} ) ["'`]?
    (?: \s{0,5}(?: :=|=>|->|==?|: )\s{0,5}
      | \s{1,5}(?: is|was|to|ist|lautet|es|est )(?: \s{1,5}now )?:?\s{1,5} )
    (?P<value> "[^"\n]{4,200}" | '[^'\n]{4,200}' | `[^`\n]{4,200}` | [^\s"'`,;<>()\[\]{}$]{4,500} )
    """,
    re.VERBOSE | re.IGNORECASE,
)
"""A value that a text names; each part is bounded, so that no text takes long."""

_NAMES = ("pass", "pwd", "kennwort", "contraseña", "pin", "secret", "credential", "token", "key")
"""A text without any of these names no secret."""

_CODE = re.compile(r"[\w.]{1,500}[(\[]")


class Masked(NamedTuple):
    """A text, or a value of JSON, whose secrets are masked.

    Attributes:
        value: It itself when it holds no secret.
        kinds: How many secrets of each kind were masked.
    """

    value: Any
    kinds: Counter[str]


class _Finding(NamedTuple):
    start: int
    end: int
    kind: str


def mask_text(text: str) -> Masked:
    """Return a text with each secret replaced by ``[masked KIND]``."""
    kinds: Counter[str] = Counter()
    return Masked(_mask_text(text, kinds), kinds)


def _mask_text(text: str, kinds: Counter[str]) -> str:
    """Return a text with its secrets masked, and count them; without any, return the text itself.

    Most texts have none, and every text of an import passes here.
    """
    findings = _findings(text)
    if not findings:
        return text
    found = _joined(findings, [match.span() for match in _MASK.finditer(text)])
    if not found:
        return text
    parts, end = [], 0
    for each in found:
        parts += [text[end : each.start], f"[masked {each.kind}]"]
        end = each.end
        kinds[each.kind] += 1
    return "".join([*parts, text[end:]])


def mask_json(value: Any) -> Masked:  # noqa: ANN401 # any JSON
    """Return a value of JSON with the secrets of all its texts masked.

    A text that is JSON itself stays JSON. A short text is also judged by its key, and the object of
    a triple by its predicate.
    """
    kinds: Counter[str] = Counter()
    return Masked(_mask(value, kinds), kinds)


def masked_line(line: bytes) -> bytes:
    """Return a line of JSON with its secrets masked; the line itself when it has none."""
    masked = mask_json(line.decode(errors="replace"))
    return masked.value.encode(errors="replace") if masked.kinds else line


def pieces(text: str, most: int) -> Iterator[tuple[int, int]]:
    """Yield the pieces of a long text, by begin and end; none ends within a secret.

    Args:
        most: The longest piece, in characters; a longer secret is cut.
    """
    if len(text) <= most:
        yield 0, len(text)
        return
    secrets, start = _joined(_findings(text), ()), 0
    while start < len(text):
        end = min(start + most, len(text))
        around = (each for each in secrets if start < each.start < end < each.end)
        end = next(around, _Finding(end, end, "")).start
        yield start, end
        start = end


def _mask(value: Any, kinds: Counter[str], name: str = "") -> Any:  # noqa: ANN401 # any JSON
    match value:
        case str():
            return _mask_named(value, kinds, name)
        case dict() | Mapping():  # the check for a dict alone takes less time
            return {
                _mask_key(key, kinds): _mask(each, kinds, _name_of(key, value))
                for key, each in value.items()
            }
        case list() | tuple():
            return [_mask(each, kinds, name) for each in value]
        case _:
            return value


def _mask_key(key: Any, kinds: Counter[str]) -> Any:  # noqa: ANN401 # any JSON
    if not isinstance(key, str) or (len(key) <= _LONGEST_KEPT and _is_plain_key(key)):
        return key
    return _mask_named(key, kinds, "")


@lru_cache(maxsize=1_024)
def _is_plain_key(key: str) -> bool:
    """Return whether a key holds no secret; the keys of one file repeat in every line."""
    return _mask_named(key, Counter(), "") == key


def _name_of(key: object, around: Mapping[Any, Any]) -> str:
    """Return what a value is called: its key, or the predicate of the triple whose object it is."""
    predicate = around.get(_PREDICATES.get(str(key), ""))
    return predicate if isinstance(predicate, str) else str(key)


def _json_of(value: object) -> str:
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    # Half a character stays an escape, since no text of an episode may hold one.
    valid = text.encode(errors="replace").decode() == text
    return text if valid else json.dumps(value, separators=(",", ":"))


def _mask_named(text: str, kinds: Counter[str], name: str) -> str:
    if text.lstrip()[:1] in ("{", "["):
        try:
            inner = json.loads(text)
        except (ValueError, RecursionError):
            inner = None
        if isinstance(inner, dict | list):
            masked = mask_json(inner)
            kinds.update(masked.kinds)
            return _json_of(masked.value) if masked.kinds else text
    found = _mask_text(text, kinds)
    is_short = _SHORTEST_NAMED <= len(text) <= _LONGEST_NAMED
    if found is text and is_short and _names_secret(name):
        return _mask_by_name(text, kinds, name)
    return found


def _names_secret(name: str) -> bool:
    lowered = name.lower()
    return _has_any(lowered, _NAMES) or "auth" in lowered


def _has_any(text: str, parts: Sequence[str]) -> bool:
    # any() takes three times as long, and this runs for each text.
    for part in parts:  # noqa: SIM110
        if part in text:
            return True
    return False


def _mask_by_name(text: str, kinds: Counter[str], name: str) -> str:
    """Return a value that is masked when its name says that it is a secret."""
    before = f"{name}: "
    for each in _findings(before + text):
        # The name alone decides nothing: the whole value must be the secret.
        if each.start >= len(before) and each.end == len(before) + len(text):
            kinds[each.kind] += 1
            return f"[masked {each.kind}]"
    return text


def _joined(findings: list[_Finding], masks: Sequence[tuple[int, int]]) -> list[_Finding]:
    """Return findings without overlaps, in order, and none in the masks of an earlier time."""
    joined: list[_Finding] = []
    for each in sorted(findings, key=lambda one: (one.start, -one.end)):
        before = bisect_left(masks, (each.end, 0)) - 1
        if before >= 0 and masks[before][1] > each.start:
            continue
        if joined and each.start < joined[-1].end:
            joined[-1] = joined[-1]._replace(end=max(joined[-1].end, each.end))
        else:
            joined.append(each)
    return joined


def _findings(text: str) -> list[_Finding]:
    """Return all secrets; a pattern is tried only where a text may match it."""
    found = _listed(text)
    if _KEY_BEGINS in text:
        found += (_Finding(*at.span(), "private_key") for at in _PRIVATE_KEY.finditer(text))
    if len(text) >= _LEAST_TOKEN and max(map(len, text.split()), default=0) >= _LEAST_TOKEN:
        found += (_Finding(*at.span(), "token") for at in _TOKEN.finditer(text))
    if "://" in text:
        found += (_Finding(*at.span("value"), "password") for at in _IN_ADDRESS.finditer(text))
    if len(text) >= _LEAST_NAMED:
        found += _named(text)
    return found


def _listed(text: str) -> list[_Finding]:
    """Return what the library finds, in pieces: some texts take it the square of their length."""
    # Half a character is as long as what replaces it.
    valid = text if text.isascii() else text.encode(errors="replace").decode()
    return [
        _Finding(start + each.start, start + each.end, each.type)
        for start in range(0, max(1, len(valid) - _OVERLAP), _PIECE - _OVERLAP)
        for each in redact_secret.scan(valid[start : start + _PIECE], limits=_LIMITS)
    ]


def _named(text: str) -> Iterator[_Finding]:
    """Yield the values that a text calls a password, a PIN, a token or a key."""
    if not _has_any(text.lower(), _NAMES):
        return
    for match in _NAMED.finditer(text):
        value, (start, end) = match["value"], match.span("value")
        if value[0] in "\"'`":
            value, start, end = value[1:-1], start + 1, end - 1
        else:
            value = value.rstrip(".!?:")
            end = start + len(value)
        kind = "password" if match["password"] else "pin" if match["pin"] else "token"
        if _is_secret(value, kind) and not _CODE.match(text, start):
            yield _Finding(start, end, kind)


def _is_secret(value: str, kind: str) -> bool:
    """Return whether a named value looks like a secret, and not like a word of a sentence."""
    letters, digits = any(map(str.isalpha, value)), any(map(str.isdecimal, value))
    match kind:
        case "pin":
            return value.isdecimal() and len(value) <= _LONGEST_PIN
        case "password":
            signs = any(not each.isalnum() and each not in " .-/" for each in value)
            return digits or (letters and signs)
        case _:
            return letters and digits and len(value) >= _SHORTEST_TOKEN
