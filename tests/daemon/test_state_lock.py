"""A state directory admits one slumberd at a time."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import slumberd
from slumberd.daemon import tenure
from slumberd.daemon.tenure import PID_FILE, StateLock, file_system_of
from slumberd.model.errors import PermissionDeniedError, StateDirectoryLockedError, StoreError
from tests.support.broken_disks import ordinary_user
from tests.support.waiting import PATIENCE_SECONDS

pytestmark = pytest.mark.unit

HOLD = """
import sys
from pathlib import Path
from slumberd.daemon.tenure import StateLock
with StateLock(Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.read()
"""
MOUNTS = r"""
21 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw
22 21 0:21 / /var/lib rw - xfs /dev/sdb rw
23 22 0:50 / /var/lib/slumberd rw,relatime shared:9 master:2 - nfs4 server:/export rw
24 21 0:51 / /mnt/two\040words rw - cifs //server/share rw
25 21 0:52 / /srv rw - nfs server:/srv rw
26 25 0:53 / /srv rw - tmpfs tmpfs rw
"""


@contextmanager
def holder(directory: Path) -> Iterator[subprocess.Popen[str]]:
    """Run another process that holds the lock until the block ends."""
    environment = os.environ | {"PYTHONPATH": str(Path(slumberd.__file__).parents[1])}
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, str(directory)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=environment,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        try:
            yield process
        finally:
            process.kill()


@pytest.mark.parametrize(("umask", "mode"), [(0o022, 0o700), (0o007, 0o750)])
def test_lock_creates_the_directory_for_its_owner_or_a_group_that_may_write(
    tmp_path: Path, umask: int, mode: int
) -> None:
    directory, before = tmp_path / "a" / "state", os.umask(umask)

    with StateLock(directory):
        os.umask(before)
        assert directory.stat().st_mode & 0o777 == mode
        assert (directory / PID_FILE).read_text() == f"{os.getpid()}\n"

    assert list(directory.iterdir()) == []


@pytest.mark.slow
def test_second_process_is_refused_with_the_pid_of_the_first(tmp_path: Path) -> None:
    with holder(tmp_path) as first:
        with pytest.raises(StateDirectoryLockedError) as caught, StateLock(tmp_path):
            pass

        assert caught.value.holder == f"pid {first.pid}"
        assert caught.value.exit_code == 75


@pytest.mark.slow
def test_lock_of_a_killed_process_is_free(tmp_path: Path) -> None:
    with holder(tmp_path) as first:
        first.send_signal(signal.SIGKILL)
        first.wait(timeout=PATIENCE_SECONDS)

    assert (tmp_path / PID_FILE).exists()
    with StateLock(tmp_path):
        assert (tmp_path / PID_FILE).read_text() == f"{os.getpid()}\n"


def test_deleted_pid_file_admits_no_second_process(tmp_path: Path) -> None:
    with holder(tmp_path):
        (tmp_path / PID_FILE).unlink()

        with pytest.raises(StateDirectoryLockedError, match="pid unknown"), StateLock(tmp_path):
            pass


def test_lock_is_free_after_the_block_ends(tmp_path: Path) -> None:
    with StateLock(tmp_path):
        pass

    with StateLock(tmp_path):
        assert tenure.holder_of(tmp_path) == f"pid {os.getpid()}"


def test_directory_stays_free_when_the_pid_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / PID_FILE).mkdir()
    with pytest.raises(StoreError, match="cannot be used"), StateLock(tmp_path):
        pass
    (tmp_path / PID_FILE).rmdir()

    with StateLock(tmp_path):
        pass


def test_link_in_place_of_the_pid_file_is_not_followed(tmp_path: Path) -> None:
    other_file = tmp_path / "other"
    other_file.write_text("mine")
    state = tmp_path / "state"
    state.mkdir()
    (state / PID_FILE).symlink_to(other_file)

    with StateLock(state):
        assert (state / PID_FILE).read_text() == f"{os.getpid()}\n"

    assert other_file.read_text() == "mine"


def test_file_in_place_of_the_directory_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "state"
    path.touch()

    with pytest.raises(StoreError, match="cannot be used"), StateLock(path):
        pass


def test_directory_that_may_not_be_written_is_refused(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)

    with ordinary_user(), pytest.raises(PermissionDeniedError), StateLock(tmp_path):
        pass


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        pytest.param("/home/me", "ext4", id="the root"),
        pytest.param("/var/lib/other", "xfs", id="a mount below"),
        pytest.param("/var/lib/slumberd/state", "nfs4", id="the deepest counts"),
        pytest.param("/var/lib/slumberd2", "xfs", id="names are compared whole"),
        pytest.param("/mnt/two words/state", "cifs", id="with a blank"),
        pytest.param("/srv/state", "tmpfs", id="the last mounted lies on top"),
    ],
)
def test_file_system_is_that_of_the_deepest_mount(path: str, kind: str) -> None:
    assert file_system_of(Path(path), MOUNTS.strip()) == kind


def test_file_system_is_unknown_when_nothing_is_mounted() -> None:
    assert file_system_of(Path("/home"), "") == "unknown"


def test_network_file_system_is_refused(tmp_path: Path) -> None:
    mounts = tmp_path / "mountinfo"
    mounts.write_text("21 1 0:50 / / rw - nfs4 server:/export rw\n")
    refused = StateLock(tmp_path / "state", mounts=mounts)

    with pytest.raises(StoreError, match="is on nfs4"), refused:
        pass


def test_local_file_system_is_assumed_where_mounts_cannot_be_read(tmp_path: Path) -> None:
    with StateLock(tmp_path, mounts=tmp_path / "missing"):
        assert tenure.holder_of(tmp_path) == f"pid {os.getpid()}"
