"""Owners of restored files."""

from __future__ import annotations

import os
import pwd

import pytest

from slumberd.daemon.copies.file_copies import SavedFile, _ids_of

pytestmark = pytest.mark.unit

ME = pwd.getpwuid(os.getuid())


@pytest.mark.parametrize(
    ("user", "uid"),
    [
        pytest.param(ME.pw_name, ME.pw_uid, id="a name of this machine"),
        pytest.param("nobody-has-this-name", 4_242, id="a name of another machine"),
        pytest.param("", 4_242, id="no name"),
    ],
)
def test_owner_is_found_by_its_name_else_by_its_number(user: str, uid: int) -> None:
    saved = SavedFile(
        name="memory.db", role="memory", bytes=0, sha256="0" * 64, mode="600",
        uid=4_242, gid=4_343, user=user, group="nobody-has-this-name",
    )  # fmt: skip

    assert _ids_of(saved) == (uid, 4_343)
