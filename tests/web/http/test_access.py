"""A token gives its caller a scope and rights; the file of tokens is read strictly."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from slumberd.model.errors import ConfigurationError, NotAuthenticatedError
from slumberd.operations.caller import Caller, Right
from slumberd.web.http.access import Access, hash_of, new_token
from tests.support.http_daemon import write_entries

pytestmark = pytest.mark.integration

TOKEN = new_token()
ENTRY = {"name": "laptop", "sha256": hash_of(TOKEN), "user": "ana", "rights": ["read"]}
PEER = Caller.of_user(1000)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    written = tmp_path / "tokens.yaml"
    write_entries(written, [ENTRY])
    return written


def test_token_names_its_caller(file: Path) -> None:
    caller = Access(file).caller_of(None, f"Bearer {TOKEN}")

    assert (caller.name, caller.user) == ("token laptop", "ana")
    assert caller.rights == frozenset({Right.READ})


def test_peer_without_a_token_is_itself_and_with_one_is_the_token(file: Path) -> None:
    access = Access(file)

    assert access.caller_of(PEER, None) is PEER
    assert access.caller_of(PEER, f"bearer {TOKEN}").user == "ana"


@pytest.mark.parametrize(
    "header",
    [
        pytest.param(None, id="none"),
        pytest.param("Bearer", id="no token"),
        pytest.param("Bearer x", id="unknown token"),
        pytest.param(f"Basic {TOKEN}", id="another scheme"),
        pytest.param(TOKEN, id="no scheme"),
    ],
)
def test_network_without_a_known_token_is_refused(file: Path, header: str | None) -> None:
    with pytest.raises(NotAuthenticatedError) as refused:
        Access(file).caller_of(None, header)

    assert TOKEN not in str(refused.value)


def test_without_a_file_no_token_is_known() -> None:
    with pytest.raises(NotAuthenticatedError):
        Access(None).caller_of(None, f"Bearer {TOKEN}")


def test_removed_token_is_refused_at_once(file: Path) -> None:
    access = Access(file)
    access.caller_of(None, f"Bearer {TOKEN}")

    write_entries(file, [])

    with pytest.raises(NotAuthenticatedError):
        access.caller_of(None, f"Bearer {TOKEN}")


def test_file_that_becomes_wrong_leaves_the_tokens_in_force(file: Path) -> None:
    access = Access(file)

    write_entries(file, [{"name": "x"}])

    assert access.caller_of(None, f"Bearer {TOKEN}").user == "ana"


def test_relative_file_is_in_the_directory_of_credentials(file: Path) -> None:
    access = Access(Path(file.name), credentials=file.parent)

    assert access.caller_of(None, f"Bearer {TOKEN}").user == "ana"


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        pytest.param({"sha256": "abc"}, "sha256", id="short hash"),
        pytest.param({"rights": []}, "rights", id="no rights"),
        pytest.param({"rights": ["reed"]}, "'reed'", id="unknown right"),
        pytest.param({"rights": ["operate"]}, "'operate'", id="operator of one user"),
        pytest.param({"usr": "ana"}, "usr", id="unknown key"),
        pytest.param({"user": ""}, "user", id="empty user"),
    ],
)
def test_mistake_of_the_file_is_reported(file: Path, change: dict[str, Any], problem: str) -> None:
    write_entries(file, [{**ENTRY, **change}])

    with pytest.raises(ConfigurationError, match=problem):
        Access(file)


def test_file_that_others_can_read_is_refused(file: Path) -> None:
    file.chmod(0o644)

    with pytest.raises(ConfigurationError, match="chmod 600"):
        Access(file)


def test_missing_file_is_reported(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="cannot be read"):
        Access(tmp_path / "none")


def test_new_tokens_differ() -> None:
    assert len({new_token() for _ in range(100)}) == 100
