"""What holds for every test."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import settings

from tests.catalogue import complaints_in, watched

# A busy machine is no fault of an example; what must not take long is measured where that is said.
settings.register_profile("slumberd", deadline=None)
settings.register_profile("long", deadline=None, max_examples=5_000)
settings.load_profile("slumberd")


@pytest.fixture(autouse=True)
def lines_of_the_catalogue(
    monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> Iterator[None]:
    """Fail a test that logged what is not in the catalogue, or not as it says there.

    What other processes log counts where it goes to a file in the test's directory.
    """
    # Asked for now, the directory goes after us.
    folder = request.getfixturevalue("tmp_path") if "tmp_path" in request.fixturenames else None
    with watched(monkeypatch) as wrong:
        yield
    if folder is not None:
        wrong += complaints_in(folder)
    assert not wrong, wrong[:3]
