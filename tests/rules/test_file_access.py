"""The ledger key comes from a file of the user, or from the service manager."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from slumberd.model.errors import ConfigurationError
from slumberd.rules.file_access import read_key
from slumberd.rules.settings import load_settings

pytestmark = pytest.mark.unit

KEY = bytes(range(32))


def key_file(folder: Path, key: bytes = KEY, mode: int = 0o600) -> Path:
    file = folder / "ledger.key"
    file.write_bytes(key)
    file.chmod(mode)
    return file


def refusal(file: Path, credentials: Path | None = None) -> str:
    with pytest.raises(ConfigurationError) as caught:
        read_key(file, credentials=credentials)
    return str(caught.value)


@pytest.mark.parametrize(
    "key",
    [
        pytest.param(KEY, id="32 bytes"),
        pytest.param(KEY[:15] + b"\n", id="16, the last a line feed"),
        pytest.param(bytes(4096), id="4096 bytes"),
    ],
)
def test_key_is_the_whole_content_of_its_file(tmp_path: Path, key: bytes) -> None:
    assert read_key(key_file(tmp_path, key), credentials=None) == key


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o660, 0o620, 0o601])
def test_key_file_that_others_can_read_or_write_is_refused(tmp_path: Path, mode: int) -> None:
    file = key_file(tmp_path, mode=mode)

    message = refusal(file)

    assert message == (
        f"{file}: facts.key_file: is open to others than its owner (mode {mode:o}); chmod 600 it"
    )


def test_credential_may_have_any_file_mode(tmp_path: Path) -> None:
    file = key_file(tmp_path, mode=0o440)

    assert read_key(file, credentials=tmp_path) == KEY
    assert read_key(Path(file.name), credentials=tmp_path) == KEY


def test_path_that_leaves_the_credentials_directory_is_not_a_credential(tmp_path: Path) -> None:
    file = key_file(tmp_path, mode=0o440)
    (tmp_path / "credentials").mkdir()
    (tmp_path / "credentials" / "key").symlink_to(file)

    for way_out in ("../ledger.key", "key"):
        assert "chmod 600" in refusal(Path(way_out), tmp_path / "credentials")


@pytest.mark.parametrize("length", [0, 15, 4097])
def test_key_of_a_wrong_length_is_refused(tmp_path: Path, length: int) -> None:
    assert "a key has 16 to 4096 bytes" in refusal(key_file(tmp_path, bytes(length)))


def test_missing_key_file_is_a_mistake(tmp_path: Path) -> None:
    assert "No such file" in refusal(tmp_path / "ledger.key")


def test_pipe_and_directory_are_refused_as_key(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe", 0o600)

    assert "is not a file" in refusal(tmp_path / "pipe")
    assert "facts.key_file: " in refusal(tmp_path)


def test_relative_key_path_needs_the_service_manager() -> None:
    message = refusal(Path("ledger.key"))

    assert message == (
        "ledger.key: facts.key_file: is relative to $CREDENTIALS_DIRECTORY, which is not set;"
        " write an absolute path"
    )


def test_settings_read_the_credentials_directory_of_the_service_manager() -> None:
    environ = {
        "HOME": "/home/alice",
        "CREDENTIALS_DIRECTORY": "/run/credentials/slumberd",
        "SLUMBERD_FACTS__KEY_FILE": "ledger.key",
    }

    settings = load_settings(None, overrides={}, environ=environ, system_file=Path("/nowhere"))

    assert settings.facts.key_file == Path("ledger.key")
    assert settings.credentials_dir == Path("/run/credentials/slumberd")
