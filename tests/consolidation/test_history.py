"""What the ledger knows of one fact id."""

from __future__ import annotations

import pytest

from slumberd.consolidation.precedence import Evaluation, History, UndoneEvaluation

pytestmark = pytest.mark.unit


@pytest.mark.parametrize(
    ("firing", "owner"), [(1, "ann"), (2, "ann"), (3, "bob"), (4, "bob"), (5, "")]
)
def test_owner_of_a_fact_id_is_that_of_the_firing(firing: int, owner: str) -> None:
    history = History(
        [Evaluation(1, "r", 1, None, 0, 1, "ann"), Evaluation(3, "r", 2, None, 0, 3, "bob")],
        [UndoneEvaluation(2, 1, 2, "ann"), UndoneEvaluation(4, 3, 4, "bob")],
    )

    assert history.owner_at(firing) == owner
