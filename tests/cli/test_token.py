"""`slumberd token new` prints a token once, and the line that lets it in."""

from __future__ import annotations

from pathlib import Path

import orjson
import pytest

from slumberd.web.http.access import Access
from tests.support.cli_runner import called

pytestmark = pytest.mark.integration


def test_printed_line_lets_the_printed_token_in(tmp_path: Path) -> None:
    printed = called("token", "new", "laptop", "--user", "ana", "--rights", "read,write").stdout
    token = printed.partition("token: ")[2].partition("\n")[0]
    line = printed.splitlines()[-1]
    file = tmp_path / "tokens.yaml"
    file.touch(mode=0o600)
    file.write_text(f"tokens:\n{line}\n", encoding="ascii")

    caller = Access(file).caller_of(None, f"Bearer {token}")

    assert (caller.name, caller.user, caller.agent) == ("token laptop", "ana", None)
    assert token not in line


def test_json_has_the_token_and_its_entry() -> None:
    printed = orjson.loads(called("token", "new", "watch", "--rights", "operate", "--json").stdout)

    assert printed["token"].startswith("slumberd_")
    assert printed["entry"].keys() == {"name", "sha256", "rights"}


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["--rights", "reed"], "'reed' is not a right"),
        (["--rights", "operate", "--user", "ana"], "'operate' reaches every user"),
        (["--user", ""], "user"),
    ],
)
def test_mistake_is_refused_without_a_token(words: list[str], problem: str) -> None:
    ended = called("token", "new", "laptop", *words)

    assert ended.returncode == 64
    assert problem in ended.stderr
    assert "slumberd_" not in ended.stdout
