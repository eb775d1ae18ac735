"""A rule that asks a language model, under a real systemd with the drop-in of the documentation."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

import pytest

from tests.support.builders import episode
from tests.support.installation import jsonl
from tests.support.model_server import ModelServer, server_in_a_thread
from tests.support.waiting import wait_until
from tests.systemd.box import PEOPLE, SHIPPED, Box, installation_commands
from tests.systemd.box import bootable as bootable

pytestmark = [
    pytest.mark.acceptance,
    pytest.mark.nightly,
    pytest.mark.usefixtures("bootable"),
]

RULE = """\
rules:
  - id: chat
    cadence: {every: 1}
    when_filter: ""
    then_emits: [facts]
    stages:
      - extract: {with: openai, model: tiny, predicates: [likes]}
"""
UNIT = "/etc/systemd/system/slumberd.service.d"


def drop_in() -> str:
    """Return the drop-in of the page about language models, without its credential.

    In the box, the user of a service cannot read the credentials of the service.
    """
    page = (SHIPPED / "docs/how-to/ask-a-language-model.md").read_text()
    found = re.search(r"<!-- drop-in: language model -->\n```ini\n(.*?)```", page, re.DOTALL)
    assert found is not None
    return found[1].replace("LoadCredential=model.key:/etc/slumberd/model.key\n", "")


@pytest.fixture(scope="module")
def server() -> Iterator[ModelServer]:
    with server_in_a_thread() as found:
        yield found


@pytest.fixture(scope="module")
def box(tmp_path_factory: pytest.TempPathFactory, server: ModelServer) -> Iterator[Box]:
    """Return a machine whose daemon may reach the server; the box shares the host's network."""
    with Box(tmp_path_factory.mktemp("box")) as box:
        box.do("systemctl start systemd-journald")
        box.do(installation_commands())
        box.do("systemd-sysusers -", PEOPLE)
        box.log_to_journal()
        box.do("umask 077; cat > /etc/slumberd/model.key", "s3cret\n")
        box.do("chown slumberd /etc/slumberd/model.key")
        edits = f"s#^  base_url: null#  base_url: {server.url}#; /^language_model:/,/^# The dir/"
        edits += "s#^  key_file: null#  key_file: /etc/slumberd/model.key#"
        box.do(f"sed -i '{edits}' /etc/slumberd/slumberd.yaml")
        box.do("rm -r /etc/slumberd/rules.d/*; cat > /etc/slumberd/rules.d/chat.yaml", RULE)
        box.do(f"cat > {UNIT}/language-model.conf", drop_in())
        box.do("systemctl daemon-reload; systemctl restart slumberd")
        yield box
        box.do("systemctl stop slumberd")


def facts(box: Box) -> list[tuple[str, str]]:
    found = box.do("runuser -u agent -- slumberd facts --user ann --json").splitlines()
    payloads = [json.loads(line)["payload"] for line in found]
    return [(one["predicate"], one["object"]) for one in payloads if "predicate" in one]


def test_daemon_in_its_sandbox_asks_with_the_secret(box: Box, server: ModelServer) -> None:
    said = episode("e1", content="I like tea", user="ann", source_node="ann")
    box.do("runuser -u agent -- slumberd import -", jsonl(said).decode())

    wait_until(lambda: facts(box) == [("likes", "tea")])

    assert server.asked() == [["I like tea"]]
    assert "bearer s3cret" in server.headers[0].lower()
    assert "answers.recorded" in box.do("journalctl -u slumberd -o cat")
    assert "s3cret" not in box.do("journalctl -u slumberd -o cat")


def test_without_the_drop_in_the_episodes_wait(box: Box, server: ModelServer) -> None:
    box.do(
        f"rm {UNIT}/language-model.conf;"
        " sed -i 's#key_file: /etc/slumberd/model.key#key_file: null#' /etc/slumberd/slumberd.yaml;"
        " systemctl daemon-reload; systemctl restart slumberd"
    )
    before = len(server.requests)
    said = episode("e2", content="I like ale", user="ann", source_node="ann")
    box.do("runuser -u agent -- slumberd import -", jsonl(said).decode())

    wait_until(lambda: "answers.waiting" in box.do("journalctl -u slumberd -o cat"))

    assert len(server.requests) == before
    assert ("likes", "ale") not in facts(box)
