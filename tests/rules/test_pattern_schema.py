"""The answer of a model that extracts triples: what it may say, and that slumberd can read it."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from slumberd.consolidation.claim import MOST_TRIPLES, Claim, claim_of, statements_of
from slumberd.rules.pattern_schema import TriplesAnswer
from tests.support.builders import version

pytestmark = pytest.mark.unit

TRIPLE = {"subject": "ada", "predicate": "drinks", "object": "tea", "confidence": 0.5}


@pytest.mark.parametrize("count", [0, 1, MOST_TRIPLES])
def test_each_triple_of_an_answer_is_a_claim(count: int) -> None:
    answer = TriplesAnswer.model_validate({"triples": [TRIPLE] * count})

    found = [
        claim_of(one, "facts") for one in statements_of(version("e1", metadata=answer.model_dump()))
    ]

    claims = [claim for claim in found if isinstance(claim, Claim) and claim.asserts]
    assert len(found) == count + 1
    assert [claim.confidence for claim in claims] == [0.5] * count


@pytest.mark.parametrize(
    "triple",
    [
        TRIPLE | {"subject": ""},
        TRIPLE | {"object": 5},
        TRIPLE | {"confidence": 1.5},
        TRIPLE | {"intent": "delete"},
        {key: value for key, value in TRIPLE.items() if key != "predicate"},
    ],
)
def test_answer_of_another_form_is_refused(triple: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        TriplesAnswer.model_validate({"triples": [triple]})


def test_answer_without_triples_is_refused() -> None:
    with pytest.raises(ValidationError):
        TriplesAnswer.model_validate({})
