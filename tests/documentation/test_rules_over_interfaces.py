"""The documented rules find the same facts in the same turns, through every interface.

The rules are those of the pages. What the assistant says of itself is never a fact of the person.
"""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
import orjson
import pytest

from slumberd import Memory
from tests.support.cli_runner import called
from tests.support.documentation import DOCS, Block, blocks_of
from tests.support.forked_commands import words_of_program
from tests.support.late_imports import LateModule
from tests.support.mcp_clients import SCOPED, answer, configure, http_client, serving_memory
from tests.support.model_server import Reply, model_server, stated, triples, turns_in
from tests.support.traces import NOON, SECOND, document_of, messages, span, text
from tests.support.transcripts import CLAUDE_CODE, CODEX, Hook, said

if TYPE_CHECKING:
    from slumberd.integrations import langgraph, openai_agents
else:
    langgraph = LateModule("slumberd.integrations.langgraph")
    openai_agents = LateModule("slumberd.integrations.openai_agents")

pytestmark = pytest.mark.integration

TURNS = [
    ("user", "I live in Århus. I prefer tea."),
    ("assistant", "I live in Rome. I prefer cake."),
    ("user", "2 teas, please."),
    ("assistant", "9 cakes, please. Which table would you like?"),
    ("user", "By the window, please."),
    ("assistant", "I live in Rome now."),
]
FACTS = {
    ("ada", "lives_in", "Århus"),
    ("ada", "prefers", "tea"),
    ("ada", "orders", "2 teas"),
    ("ada", "sits_by", "window"),
}
BEGIN = datetime(2026, 3, 1, 9, tzinfo=UTC)
PATTERNS = DOCS / "tutorials" / "chat-to-facts.md"
FUNCTION = DOCS / "how-to" / "extract-with-a-function.md"
MODEL = DOCS / "how-to" / "ask-a-language-model.md"


@dataclass(frozen=True)
class Home:
    """A running daemon with the rules of the pages.

    Attributes:
        directory: Its state directory.
        memory: The memory of ada in the session s1, on that daemon.
        socket: The socket of its HTTP.
    """

    directory: Path
    memory: Memory
    socket: Path


Send = Callable[[Home], Awaitable[None]]


def block_of(page: Path, holds: Callable[[Block], bool]) -> str:
    """Return the text of the only block of a page that has something."""
    [found] = [block for block in blocks_of(page) if holds(block)]
    return found.text


def file_of(page: Path, path: str) -> str:
    """Return the text of a file that a page shows."""
    return block_of(page, lambda block: block.mark == "file" and block.argument == path)


def rule_of_model() -> str:
    """Return the first rule that the page about language models shows."""
    return block_of(MODEL, lambda block: block.language == "yaml" and "predicates:" in block.text)


def in_channel(channel: str, rule: str) -> str:
    return rule.replace("then_emits: [facts]", f"then_emits: [{channel}]")


@pytest.fixture
def rules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, str]]:
    """Return the rule files of the pages by path, and make their function importable."""
    folder = tmp_path / "functions"
    folder.mkdir()
    (folder / "cafe.py").write_text(file_of(FUNCTION, "functions/cafe.py"), "utf-8")
    monkeypatch.syspath_prepend(folder)
    monkeypatch.setenv("PYTHONPATH", str(folder))
    model = rule_of_model()
    yield {
        "chat.yaml": file_of(PATTERNS, "state/rules.d/chat.yaml"),
        "patterns/cafe.yaml": file_of(PATTERNS, "state/rules.d/patterns/cafe.yaml"),
        # In one channel, the first triples of two rules about one episode have one id.
        "orders.yaml": in_channel("orders", file_of(FUNCTION, "state/rules.d/orders.yaml")),
        "model.yaml": in_channel("homes", model.replace("every: 20", "every: 1")),
    }
    sys.modules.pop("cafe", None)


def homes_of(request: dict[str, Any]) -> Reply:
    """Answer where the speaker of each turn lives."""
    found = [(turn, re.search(r"I live in (\w+)", turn["text"])) for turn in turns_in(request)]
    return triples(
        *(
            stated(turn["id"], turn["speaker"], "lives_in", home[1], quote=home[0])
            for turn, home in found
            if home
        )
    )


@asynccontextmanager
async def running(
    directory: Path, rules: dict[str, str], *, by_socket: bool = True
) -> AsyncIterator[Home]:
    """Run a daemon with some rules, and a language model beside it.

    Args:
        directory: The state directory.
        rules: The rule files, by path.
        by_socket: Whether the daemon serves HTTP.
    """
    configure(directory, {"ada": ("ada", *SCOPED)})
    for file in (directory / "rules.d").iterdir():
        file.unlink()
    (directory / "rules.d" / "patterns").mkdir()
    for name, content in rules.items():
        (directory / "rules.d" / name).write_text(content, "utf-8")
    async with model_server() as server:
        server.otherwise = homes_of
        config = directory / "slumberd.yaml"
        config.write_text(f"{config.read_text()}\nlanguage_model: {{base_url: {server.url}}}\n")
        async with serving_memory(directory) if by_socket else opened(directory) as (host, socket):
            ada = Memory(host._transport, user="ada", agent="desk", session="s1")
            yield Home(directory, ada, socket)


@asynccontextmanager
async def opened(directory: Path) -> AsyncIterator[tuple[Memory, Path]]:
    """Run a daemon without HTTP."""
    async with Memory.open(directory, user="host") as memory:
        yield memory, directory / "none"


async def facts_of(home: Home) -> set[tuple[Any, ...]]:
    """Return the triples of all facts of ada, once every turn was evaluated."""
    episodes = await home.memory.episodes(limit=100)
    for episode in episodes:
        outcome = await home.memory.wait_for(episode.id, seconds=60.0)
        assert outcome.settled
    assert [episode.content for episode in reversed(episodes)] == [said for _, said in TURNS]
    found = (await home.memory.facts()).facts
    parts = ("subject", "predicate", "object")
    return {tuple(fact.payload[part] for part in parts) for fact in found}


async def by_python(home: Home) -> None:
    for speaker, words in TURNS:
        await home.memory.remember(words, speaker=None if speaker == "user" else speaker)


async def by_http(home: Home) -> None:
    transport = httpx.AsyncHTTPTransport(uds=str(home.socket))
    headers = {"Authorization": "Bearer ada"}
    base = "http://localhost"
    async with httpx.AsyncClient(transport=transport, headers=headers, base_url=base) as client:
        for speaker, words in TURNS:
            named = {} if speaker == "user" else {"speaker": speaker}
            put = await client.post("/v1/episodes", json={"text": words, "session": "s1", **named})
            put.raise_for_status()


async def by_mcp(home: Home) -> None:
    async with http_client(home.socket, "ada") as client:
        for speaker, words in TURNS:
            named = {"speaker": "user"} if speaker == "user" else {}
            await answer(client, "remember", text=words, session="s1", **named)


async def by_hook(home: Home, agent: str) -> None:
    hook = Hook(agent, home.directory, home.directory)
    hook.write(*(said(agent, *turn, number) for number, turn in enumerate(TURNS, 1)))
    done = await asyncio.to_thread(hook.run, "Stop")
    assert (done.returncode, done.stderr) == (0, "")


async def by_claude_code(home: Home) -> None:
    await by_hook(home, CLAUDE_CODE)


async def by_codex(home: Home) -> None:
    await by_hook(home, CODEX)


async def by_openai(home: Home) -> None:
    session = openai_agents.SlumberdSession("s1", home.memory)
    for speaker, words in TURNS:
        item: Any = {"role": speaker, "content": words}
        await session.add_items([item])


async def by_traces(home: Home) -> None:
    transport = httpx.AsyncHTTPTransport(uds=str(home.socket))
    headers = {"Authorization": "Bearer ada"}
    base = "http://localhost"
    async with httpx.AsyncClient(transport=transport, headers=headers, base_url=base) as client:
        for number in range(0, len(TURNS), 2):
            history = [text(*turn) for turn in TURNS[: number + 1]]
            begin = NOON + number * 10 * SECOND
            call = span(
                trace_id=f"{number + 1:032x}",
                start=begin,
                end=begin + SECOND,
                attributes={
                    "gen_ai.conversation.id": "s1",
                    **messages(history, [text(*TURNS[number + 1])]),
                },
            )
            sent = await client.post("/v1/traces", json=document_of([call]))
            assert sent.json() == {}


async def imported(home: Home, records: object, *options: str) -> None:
    """Import a file with the command, which finds the daemon by the state directory."""
    file = home.directory / "records.json"
    lines = [orjson.dumps(each) for each in records] if isinstance(records, list) else []
    file.write_bytes(b"\n".join(lines) if lines else orjson.dumps(records))
    config = str(home.directory / "slumberd.yaml")
    command = [*words_of_program(), "import", str(file), "--config", config, *options]
    done = await asyncio.to_thread(subprocess.run, command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def instants() -> Iterator[str]:
    for number in range(len(TURNS)):
        yield (BEGIN + timedelta(minutes=number)).isoformat()


async def by_import(home: Home) -> None:
    scope = {"user": "ada", "agent": "desk", "session": "s1", "metadata": {}}
    records = [
        {"id": f"e{n}", "content": words, "source_node": speaker, "timestamp": at, **scope}
        for n, ((speaker, words), at) in enumerate(zip(TURNS, instants(), strict=True))
    ]
    await imported(home, records)


async def by_mem0(home: Home) -> None:
    scope = {"user_id": "ada", "agent_id": "desk", "run_id": "s1"}
    records = [
        {"id": f"m{n}", "memory": words, "role": speaker, "created_at": at, **scope}
        for n, ((speaker, words), at) in enumerate(zip(TURNS, instants(), strict=True))
    ]
    await imported(home, {"results": records}, "--format", "mem0")


async def by_langgraph(home: Home) -> None:
    records = [
        {
            "namespace": ["memories", "ada"],
            "key": f"k{n}",
            "value": {"role": speaker, "content": words},
            "created_at": at,
            "updated_at": at,
        }
        for n, ((speaker, words), at) in enumerate(zip(TURNS, instants(), strict=True))
    ]
    options = ("--format", "langgraph", "--user-at", "2", "--agent", "desk", "--session", "s1")
    await imported(home, {"items": records}, *options)


WAYS = [
    pytest.param(by_python, id="Python"),
    pytest.param(by_http, id="HTTP", marks=pytest.mark.slow),
    pytest.param(by_mcp, id="MCP", marks=pytest.mark.slow),
    pytest.param(by_claude_code, id="hook of Claude Code", marks=pytest.mark.slow),
    pytest.param(by_codex, id="hook of Codex", marks=pytest.mark.slow),
    pytest.param(by_openai, id="session of OpenAI's agents", marks=pytest.mark.slow),
    pytest.param(by_traces, id="traces", marks=pytest.mark.slow),
    pytest.param(by_import, id="import of episodes", marks=pytest.mark.slow),
    pytest.param(by_mem0, id="import of mem0", marks=pytest.mark.slow),
    pytest.param(by_langgraph, id="import of LangGraph", marks=pytest.mark.slow),
]


@pytest.mark.path
@pytest.mark.parametrize("send", WAYS)
async def test_documented_rules_find_the_same_facts_through_every_interface(
    send: Send, rules: dict[str, str], tmp_path: Path
) -> None:
    serves = send is not by_python
    async with running(tmp_path / "state", rules, by_socket=serves) as home:
        await send(home)

        assert await facts_of(home) == FACTS


@pytest.mark.slow
@pytest.mark.parametrize("send", WAYS)
async def test_rules_for_every_speaker_give_the_person_no_words_of_the_assistant(
    send: Send, rules: dict[str, str], tmp_path: Path
) -> None:
    for_all = {
        name: content.replace('"is_person"', '""')
        for name, content in rules.items()
        if name != "orders.yaml"  # its function calls everybody by the user's name
    }
    async with running(tmp_path / "state", for_all) as home:
        await send(home)

        found = await facts_of(home)

    assert {fact for fact in found if fact[0] == "ada"} == {
        fact for fact in FACTS if fact[1] != "orders"
    }
    others = {subject for subject, *_ in found if subject != "ada"}
    assert others == ({"agent"} if send is by_mcp else {"assistant"})


@pytest.mark.slow
async def test_item_of_a_langgraph_store_is_no_word_of_the_person(
    rules: dict[str, str], tmp_path: Path
) -> None:
    async with running(tmp_path / "state", rules) as home:

        def put() -> None:
            with langgraph.SlumberdStore.open(
                f"unix:{home.directory}", user="ada", agent="desk"
            ) as store:
                for number, (speaker, words) in enumerate(TURNS):
                    store.put(("chat",), f"k{number}", {"role": speaker, "content": words})

        await asyncio.to_thread(put)
        found = (await home.memory.facts()).facts

    assert {fact.payload["predicate"] for fact in found} == {"langgraph_item"}
    assert json.dumps([fact.payload for fact in found]).count("Rome") > 0


def test_documented_test_of_the_model_s_rule_passes(tmp_path: Path) -> None:
    rule = rule_of_model()
    case = block_of(MODEL, lambda block: "answers:" in block.text)
    (tmp_path / "model.yaml").write_text(rule, "utf-8")
    (tmp_path / "model.test.yaml").write_text(case, "utf-8")

    done = called("test", str(tmp_path))

    assert (done.returncode, done.stdout.splitlines()[-1]) == (0, "1 test: 1 passed, 0 failed")
