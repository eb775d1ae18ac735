"""The key of a recorded answer of a language model."""

from __future__ import annotations

import pytest

from slumberd.model.extraction import Turn, answer_key, summary_key

pytestmark = pytest.mark.unit

TURN = Turn("e2", "s1", "user", "I live in Rome", 7, "ada", "desk", True, "chat")


def test_key_depends_on_what_a_model_reads_and_not_on_the_own_last_turn() -> None:
    with_last = TURN._replace(own_last=TURN._replace(id="e1", content="Hi"))

    keys = {answer_key("digest", turn, None) for turn in (TURN, with_last)}

    assert keys == {"6bd579b8f05c5310f9689d3c961d5645e953dd2f4b0999551538cefcab0ed5d2"}
    assert summary_key("digest", [TURN], 9) == summary_key("digest", [with_last], 9)
    assert answer_key("digest", TURN._replace(content="Hm"), None) not in keys
