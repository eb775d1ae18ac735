"""Secrets of known forms are masked wherever a text holds them, and other texts stay."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slumberd.model.capture.episodes import SecretFilter, describe_kinds
from slumberd.model.capture.secrets import mask_json, mask_text, masked_line, pieces
from slumberd.model.errors import SecretRefusedError
from tests.support.builders import episode
from tests.support.lists import of_each
from tests.support.sample_sizes import amount
from tests.support.secrets import PASSWORD_SENTENCES, PASSWORDS, PRIVATE_KEYS, TOKENS

pytestmark = [pytest.mark.unit, pytest.mark.sampled]

PLAIN = [
    "I live in Berlin and my favourite tea is sencha.",
    "The key is under the mat, and the password reset was slow.",
    "my password is wrong, and the token expired yesterday",
    "max_tokens=4096 and token = get_token(request12345678)",
    "commit 9fceb02d0ae598e95dc970b74767f19372d61af8",
    "id 123e4567-e89b-12d3-a456-426614174000",
    "passwd = os.environ['HOME2']",
    "a public key: ssh-ed25519, and a certificate",
    "The secret is to rest the dough for 2 hours.",
    "skating-is-fun-in-the-winter and task-force-one-two-three-four",
    "",
]

WORDS = st.lists(st.sampled_from(["we", "moved", "Lisbon", "Ann", "spring"]), max_size=6)


@st.composite
def texts_with_secrets(draw: st.DrawFn) -> tuple[str, list[str]]:
    """Return a text, and the secrets in it."""
    parts, secrets = [], []
    for _ in range(draw(st.integers(1, 3))):
        parts += draw(WORDS)
        if draw(st.booleans()):
            secret = draw(TOKENS | PRIVATE_KEYS)
            parts.append(f"\n{secret}\n")
        else:
            secret = draw(PASSWORDS.filter(lambda one: "@" not in one))
            parts.append(draw(st.sampled_from(PASSWORD_SENTENCES)).format(secret) + " ")
        secrets.append(secret)
    return " ".join([*parts, *draw(WORDS)]), secrets


@settings(max_examples=amount(60, full=3_000))
@given(texts_with_secrets())
def test_secret_of_every_form_is_masked_and_the_words_around_it_stay(
    sample: tuple[str, list[str]],
) -> None:
    text, secrets = sample

    masked = mask_text(text)

    for secret in secrets:
        for line in secret.splitlines():
            assert line not in masked.value or line.startswith("-----")
    assert masked.kinds.total() >= 1
    # Nobody knows where a key ends that was cut off.
    if text.count("-----BEGIN") == text.count("-----END"):
        plain = [word for word in text.split() if word in ("Lisbon", "Ann", "spring")]
        assert [word for word in masked.value.split() if word in plain] == plain


@settings(max_examples=amount(40, full=2_000))
@given(texts_with_secrets())
def test_masked_text_is_not_masked_again(sample: tuple[str, list[str]]) -> None:
    once = mask_text(sample[0]).value

    assert mask_text(once).value == once


@of_each(lambda: PLAIN)
def test_text_without_a_secret_stays(text: str) -> None:
    assert mask_text(text) == (text, {})


SHORTEST = (
    "sk-" + "a" * 15 + "1",
    "pwd:abc1",
    "pin:1234",
    "s://:ab1@",
    "-----BEGIN PRIVATE KEY-----",
)


@of_each(lambda: SHORTEST)
def test_shortest_secret_of_each_own_form_is_masked(secret: str) -> None:
    for text in (secret, f" {secret}", f"{secret} b", f"\u2003{secret}\x1cb"):
        assert mask_text(text).kinds.total() == 1, text


@of_each(lambda: SHORTEST)
def test_key_that_holds_a_secret_is_masked_each_time(secret: str) -> None:
    masked = [mask_json({secret: number, "plain": number}) for number in range(3)]

    assert [one.kinds.total() for one in masked] == [1, 1, 1]
    assert all(secret not in one.value and "plain" in one.value for one in masked)


@settings(max_examples=amount(40, full=2_000))
@given(TOKENS, PASSWORDS)
def test_every_text_of_a_value_is_masked_by_its_form_its_key_or_its_predicate(
    token: str, password: str
) -> None:
    value: dict[str, Any] = {
        "speaker": "user",
        "env": {"DB_PASSWORD": password, "notes": ["see", {"deep": f"use {token} now"}]},
        "triples": [{"subject": "wifi", "predicate": "password", "object": password, "n": 3}],
        "item": json.dumps({"output": f"token {token}", "half": "\ud800"}),
        token: None,
    }

    masked = mask_json(value)

    written = json.dumps(masked.value)
    assert token not in written and json.dumps(password)[1:-1] not in written
    assert masked.value["speaker"] == "user"
    assert masked.value["triples"][0]["n"] == 3
    assert json.loads(masked.value["item"])["half"] == "\ud800"
    assert masked.kinds.total() == 5


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.sampled_from(PLAIN),
    lambda inner: st.lists(inner) | st.dictionaries(st.sampled_from("abc"), inner),
)


@settings(max_examples=amount(30, full=1_000))
@given(VALUES)
def test_value_without_a_secret_stays(value: Any) -> None:
    assert mask_json(value) == (value, {})


@settings(max_examples=amount(30, full=1_000))
@given(TOKENS, st.integers(0, 40))
def test_long_text_is_not_cut_within_a_secret(token: str, before: int) -> None:
    text = "w " * before + token + " end" * 40

    cut = [text[begin:end] for begin, end in pieces(text, 150)]

    assert "".join(cut) == text
    assert all(len(piece) <= 150 for piece in cut)
    assert any(token in piece for piece in cut)


def test_secret_longer_than_a_piece_is_cut() -> None:
    text = "-----BEGIN PRIVATE KEY-----\n" + "x7" * 200

    assert "".join(text[begin:end] for begin, end in pieces(text, 50)) == text


def test_line_without_a_secret_stays_byte_for_byte() -> None:
    line = b'{"a" : "\xff plain",  "b": 1.0}\n'

    assert masked_line(line) is line


@settings(max_examples=amount(30, full=1_000))
@given(PASSWORDS)
def test_line_with_a_secret_loses_it(password: str) -> None:
    line = json.dumps({"message": f"the password is {password}"}).encode() + b"\n"

    assert password.encode() not in masked_line(line)


def test_filter_masks_keeps_or_refuses() -> None:
    put = episode(content="the password is hunter2hunter2", metadata={"token": "plain"})
    mask, keep, refuse = SecretFilter("mask"), SecretFilter("keep"), SecretFilter("refuse")

    assert mask.episode(put).content == "the password is [masked password]"
    assert describe_kinds(mask.kinds) == "1 password"
    assert keep.episode(put) is put
    assert refuse(["plain"]) == ["plain"]
    with pytest.raises(SecretRefusedError, match=r"secrets \(1 password\)") as caught:
        refuse.episode(put)
    assert caught.value.kinds == {"password": 1}
    assert "hunter2" not in str(caught.value)


@pytest.mark.slow
@pytest.mark.parametrize(
    "part",
    [
        "sk-", "eyJ-", "a", "password ", "password=", "-----BEGIN PRIVATE KEY-----", "-----BEGIN ",
        "password: '", "https://a:", "postgres://", "eyJ.eyJ.", "[masked token] password: hunter2 ",
        "-", "ghp_", " ", "{", "QUJD", "Bearer ", "user:pass@", " \n", "otpauth://totp/",
    ],
)  # fmt: skip
def test_no_text_takes_the_square_of_its_length(part: str) -> None:
    text = part * (300_000 // len(part))
    begin = time.process_time()

    mask_json({"text": text})

    assert time.process_time() - begin < 8
