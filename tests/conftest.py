"""What holds for every test."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.catalogue import watched


@pytest.fixture(autouse=True)
def lines_of_the_catalogue(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Fail a test that logged what is not in the catalogue, or not as it says there."""
    with watched(monkeypatch) as wrong:
        yield
    assert not wrong, wrong[:3]
