"""Secrets of many forms, made up when a test runs: the repository holds none."""

from __future__ import annotations

import string

from hypothesis import strategies as st

_LETTERS = string.ascii_letters + string.digits


def _random(count: int, alphabet: str = _LETTERS) -> st.SearchStrategy[str]:
    # A digit at the end: no form is a word of a sentence.
    return st.text(alphabet, min_size=count - 2, max_size=count - 2).map(lambda text: f"x{text}7")


def _of(begin: str, count: int, alphabet: str = _LETTERS) -> st.SearchStrategy[str]:
    return _random(count, alphabet).map(lambda text: begin + text)


TOKENS = st.one_of(
    _of("ghp_", 36),
    _of("github_pat_", 60),
    _of("glpat-", 20),
    _of("sk-proj-", 40),
    _of("sk-ant-api03-", 80),
    _of("sk_live_", 24),
    _of("xoxb-", 40),
    _of("npm_", 36),
    _of("hf_", 34),
    _of("AKIA", 16, string.ascii_uppercase + string.digits).map(str.upper),
    st.tuples(_random(20), _random(30), _random(43)).map(
        lambda parts: f"eyJ{parts[0]}.eyJ{parts[1]}.{parts[2]}"
    ),
)
"""Tokens and keys that are known by their own form."""

PRIVATE_KEYS = st.tuples(
    st.sampled_from(["RSA ", "EC ", "OPENSSH ", "", "ENCRYPTED "]),
    st.lists(_random(64), min_size=1, max_size=4),
    st.booleans(),
).map(
    lambda parts: "\n".join(
        [
            f"-----BEGIN {parts[0]}PRIVATE KEY-----",
            *parts[1],
            *([f"-----END {parts[0]}PRIVATE KEY-----"] if parts[2] else []),
        ]
    )
)
"""Private keys, some of them cut off before their end."""

PASSWORDS = st.text(_LETTERS + "!#%&*+-_@", min_size=6, max_size=24).map(lambda text: f"q{text}4")
"""Passwords that only the words around them show."""

PASSWORD_SENTENCES = (
    "the password is {}",
    "My password is: {}",
    "password: {}",
    "Password = {}",
    "export DB_PASSWORD={}",
    "set the passphrase to '{}'",
    'the PASSWD is "{}".',
    "Das Passwort lautet {}",
    "connect to postgresql://ann:{}@db.example.com/app",
)
"""What people and programs write around a password."""
