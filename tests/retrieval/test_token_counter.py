"""The estimate of tokens."""

from __future__ import annotations

import pytest

from slumberd.retrieval.context import EstimatedTokens, TokenCounter

pytestmark = pytest.mark.unit


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        pytest.param("", 1, id="empty"),
        pytest.param("tea", 1, id="less than a token"),
        pytest.param("teas", 1, id="exactly one token"),
        pytest.param("green", 2, id="rounded up"),
        pytest.param("x" * 4_001, 1_001, id="long"),
        pytest.param("茶が好きだ", 2, id="characters and not bytes"),
    ],
)
def test_estimate_counts_a_token_for_each_four_characters(text: str, tokens: int) -> None:
    assert EstimatedTokens().count_tokens(text) == tokens


def test_estimate_is_a_token_counter() -> None:
    assert isinstance(EstimatedTokens(), TokenCounter)
