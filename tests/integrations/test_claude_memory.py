"""Claude's memory tool over facts answers as Anthropic's own tool for a local directory."""

from __future__ import annotations

import itertools
import re
from collections.abc import AsyncIterator, Iterator
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from slumberd import Memory, SyncMemory
from tests.support.late_imports import LateModule
from tests.support.sample_sizes import amount

if TYPE_CHECKING:
    from anthropic.lib import tools
    from anthropic.lib.tools import _beta_builtin_memory_tool as memory_tool

    from slumberd.integrations import claude_memory
else:
    tools = LateModule("anthropic.lib.tools")
    memory_tool = LateModule("anthropic.lib.tools._beta_builtin_memory_tool")
    claude_memory = LateModule("slumberd.integrations.claude_memory")


pytestmark = pytest.mark.integration

USERS = (f"u{number}" for number in itertools.count())

PARTS = st.lists(st.sampled_from(["a", "b", ".h", "ä b"]), min_size=1, max_size=3)
PATHS = st.one_of(
    PARTS.map(lambda parts: "/memories/" + "/".join(parts)),
    st.sampled_from(["/memories/a.md", "/memories/a.md", "/memories/b.md", "/memories/a/b.md"]),
    st.sampled_from([
        "/memories", "/memories/", "/memories//a.md", "/memories/a/../b.md", "/memories/./a.md/",
        "/memories/..", "/memories/../../etc", "/memories/a/../../x", "/etc/passwd", "a.md", "",
    ]),
)  # fmt: skip
LINES = st.lists(st.sampled_from(["tea", "aa", "", "a\rb", "ä\t\0", "x" * 700]), max_size=4)
TEXTS = LINES.map("\n".join) | LINES.map(lambda lines: "".join(f"{line}\n" for line in lines))
COMMANDS = st.one_of(
    st.fixed_dictionaries({"command": st.just("create"), "path": PATHS, "file_text": TEXTS}),
    st.fixed_dictionaries(
        {"command": st.just("view"), "path": PATHS},
        optional={"view_range": st.lists(st.integers(-2, 5), min_size=2, max_size=2)},
    ),
    st.fixed_dictionaries(
        {
            "command": st.just("str_replace"),
            "path": PATHS,
            "old_str": st.sampled_from(["tea", "a", "aa", "", "\n", "zz"]),
            "new_str": st.sampled_from(["", "coffee", "a\nb", "tea"]),
        }
    ),
    st.fixed_dictionaries(
        {
            "command": st.just("insert"),
            "path": PATHS,
            "insert_line": st.integers(-1, 4),
            "insert_text": TEXTS,
        }
    ),
    st.fixed_dictionaries({"command": st.just("delete"), "path": PATHS}),
    st.fixed_dictionaries({"command": st.just("rename"), "old_path": PATHS, "new_path": PATHS}),
)
CREATES = st.fixed_dictionaries({"command": st.just("create"), "path": PATHS, "file_text": TEXTS})
HISTORIES = st.tuples(st.lists(CREATES, max_size=3), st.lists(COMMANDS, max_size=8)).map(
    lambda both: [*both[0], *both[1]]
)
OTHER_ERROR = "an error of another class"


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SyncMemory]:
    with SyncMemory.open(tmp_path_factory.mktemp("files") / "m", user="host") as memory:
        yield memory


@pytest.fixture
async def memory(tmp_path: Path) -> AsyncIterator[Memory]:
    async with Memory.open(tmp_path / "m", user="ann") as memory:
        yield memory


def of_another_user(shared: SyncMemory) -> Memory:
    return Memory(shared._memory._transport, user=next(USERS), agent="claude", session="s")


async def answers_of(
    tool: claude_memory.SlumberdMemoryTool, commands: list[dict[str, Any]]
) -> list[str]:
    """Return what a tool answers to each command, errors too."""
    return [await answer_of(tool, command) for command in commands]


async def answer_of(tool: claude_memory.SlumberdMemoryTool, command: dict[str, Any]) -> str:
    try:
        return str(await tool.call(command))
    except tools.ToolError as error:
        return f"error: {error}"


def expected_answers(root: Path, commands: list[dict[str, Any]]) -> list[str]:
    """Return what the tool for a local directory answers."""
    reference = memory_tool.BetaLocalFilesystemMemoryTool(str(root))
    found = []
    for command in commands:
        try:
            found.append(str(reference.call(command)))
        except tools.ToolError as error:
            found.append(f"error: {error}")
        except OSError:
            found.append(OTHER_ERROR)
        drop_empty_directories(root / "memories")
    return found


def drop_empty_directories(root: Path) -> None:
    """Remove the directories without files: over facts there are none."""
    for directory in sorted(root.rglob("*"), reverse=True):
        if directory.is_dir() and not any(directory.iterdir()):
            directory.rmdir()


def without_sizes_of_directories(answer: str) -> str:
    """Return an answer whose directories have no sizes: those of a file system are its own."""
    if not answer.startswith("Here're the files"):
        return answer
    header, own, *entries = answer.split("\n")
    masked = [re.sub(r"^\S+\t(.*/)$", r"?\t\1", entry) for entry in entries]
    return "\n".join([header, re.sub(r"^\S+\t", "?\t", own), *masked])


def check_history(shared: SyncMemory, commands: list[dict[str, Any]]) -> None:
    """Check that a tool over facts answers as the tool for a local directory."""
    tool = claude_memory.SlumberdMemoryTool(of_another_user(shared))
    found = shared._run(partial(answers_of, tool, commands))
    with TemporaryDirectory() as directory:
        expected = expected_answers(Path(directory), commands)
    for command, answer, wanted in zip(commands, found, expected, strict=True):
        if wanted == OTHER_ERROR:
            assert answer.startswith("error: "), command
        else:
            assert without_sizes_of_directories(answer) == without_sizes_of_directories(wanted)


def of_file(command: str, path: str = "/memories/a", **given: Any) -> dict[str, Any]:
    return {"command": command, "path": path, **given}


def moved(old: str, new: str) -> dict[str, Any]:
    return {"command": "rename", "old_path": f"/memories/{old}", "new_path": f"/memories/{new}"}


NEW = of_file("create", file_text="1\n2\n3 aaa\n4\n5\n6\n")


@pytest.mark.slow
@pytest.mark.parametrize(
    "commands",
    [
        pytest.param(
            [NEW, of_file("create", "/memories/b", file_text=""), moved("b", "a/b")],
            id="move below a file",
        ),
        pytest.param([NEW, of_file("create", "/memories/a/b", file_text="")], id="file above"),
        pytest.param(
            [NEW, of_file("str_replace", old_str="aa", new_str="b"), of_file("view")],
            id="overlapping occurrences",
        ),
        pytest.param(
            [NEW, of_file("str_replace", old_str="a", new_str="b"), of_file("view")],
            id="three occurrences",
        ),
        pytest.param(
            [NEW, of_file("str_replace", old_str="5\n", new_str="x\ny\n"), of_file("view")],
            id="snippet in the middle",
        ),
        pytest.param(
            [NEW, of_file("create", "/memories/.h/x", file_text=""),
             of_file("create", "/memories/.i", file_text="x" * 1_500),
             of_file("create", "/memories/b/c/d/e", file_text="x" * 2_048),
             of_file("create", "/memories/i", file_text="x" * 1_500),
             of_file("view", "/memories"), of_file("view", "/memories/.h"),
             of_file("view", "/memories/b/c")],
            id="listings",
        ),
        pytest.param([NEW, of_file("view", view_range=[3, 1])], id="no lines"),
        pytest.param([NEW, of_file("view", view_range=[2, -1])], id="lines to the end"),
        pytest.param([NEW, of_file("delete", "/memories/"), moved("", "b")], id="root"),
        pytest.param([NEW, moved("a", "a"), moved("x", "a"), moved("x", "y")], id="moves"),
    ],
)  # fmt: skip
def test_history_has_the_answers_of_the_tool_for_a_local_directory(
    shared: SyncMemory, commands: list[dict[str, Any]]
) -> None:
    check_history(shared, commands)


@pytest.mark.slow
@pytest.mark.sampled
@settings(max_examples=amount(30, full=1_000), phases=[Phase.explicit, Phase.generate])
@given(commands=HISTORIES)
def test_any_history_has_the_answers_of_the_tool_for_a_local_directory(
    shared: SyncMemory, commands: list[dict[str, Any]]
) -> None:
    check_history(shared, commands)


async def call(tool: claude_memory.SlumberdMemoryTool, command: str, **given: Any) -> str:
    return str(await tool.call({"command": command, **given}))


async def create(tool: claude_memory.SlumberdMemoryTool, path: str, text: str) -> str:
    return await call(tool, "create", path=path, file_text=text)


async def view(tool: claude_memory.SlumberdMemoryTool, path: str = "/memories") -> str:
    return await call(tool, "view", path=path)


async def last_firing(memory: Memory) -> str:
    page = await memory._transport.call("changes", {"user": memory._user, "limit": 1_000})
    return str(page["changes"][-1]["firing_id"])


async def undo_last(memory: Memory) -> None:
    await memory._transport.call("undo", {"firing": await last_firing(memory)})


async def test_each_change_can_be_undone_through_the_ledger(memory: Memory) -> None:
    tool, path = claude_memory.SlumberdMemoryTool(memory), "/memories/tea.md"
    await create(tool, path, "green\n")
    created = await view(tool, path)
    await call(tool, "str_replace", path=path, old_str="green", new_str="black")
    replaced = await view(tool, path)
    await call(tool, "insert", path=path, insert_line=1, insert_text="no sugar")
    await undo_last(memory)
    assert await view(tool, path) == replaced
    await call(tool, "delete", path=path)
    await undo_last(memory)
    assert await view(tool, path) == replaced

    first, *_ = [
        change["firing_id"]
        for change in (await memory._transport.call("changes", {"user": "ann"}))["changes"]
        if change["kind"] == "update"
    ]
    await memory._transport.call("undo", {"firing": first})

    assert await view(tool, path) == created


async def test_change_is_explained_by_its_reason(memory: Memory) -> None:
    tool = claude_memory.SlumberdMemoryTool(memory)
    await create(tool, "/memories/tea.md", "green")
    await call(tool, "str_replace", path="/memories/tea.md", old_str="green", new_str="black")

    [fact] = (await memory.facts(predicate=claude_memory.PREDICATE)).facts

    assert fact.payload["subject"] == "/memories/tea.md"
    assert fact.payload["object"] == "black"
    assert fact.lineage[0]["reason"] == "Claude's memory tool: str_replace"
    assert (await memory.explain(fact.id)).kind == "fact"


async def test_files_are_recalled(memory: Memory) -> None:
    tool = claude_memory.SlumberdMemoryTool(memory)
    await create(tool, "/memories/tea.md", "Ada likes green tea")

    [hit] = await memory.recall("What tea does Ada like?", kinds=["fact"])

    assert "Ada likes green tea" in hit.text


async def test_file_of_another_user_or_agent_is_not_seen(shared: SyncMemory) -> None:
    one, other = of_another_user(shared), of_another_user(shared)
    agent = Memory(one._transport, user=one._user, agent="other", session="s")

    async def answers() -> list[str]:
        await create(claude_memory.SlumberdMemoryTool(one), "/memories/a", "x")
        both = [claude_memory.SlumberdMemoryTool(memory) for memory in (other, agent)]
        return [await answer_of(tool, {"command": "view", "path": "/memories/a"}) for tool in both]

    found = shared._run(answers)

    assert found == ["error: The path /memories/a does not exist. Please provide a valid path."] * 2


@pytest.mark.parametrize(
    ("path", "problem"),
    [
        pytest.param("/memoriesx/a", "Path must start with /memories", id="longer name"),
        pytest.param("/memories/../x", "would escape /memories directory", id="parent"),
        pytest.param("/memories/a\0b", "holds a control character", id="NUL"),
        pytest.param("/memories/a\nb", "holds a control character", id="line feed"),
        pytest.param("/memories/\ud800", "holds a control character", id="half a character"),
        pytest.param("/memories/" + "a" * 1_000, "subject", id="too long"),
    ],
)
async def test_path_that_no_file_may_have_is_refused(
    memory: Memory, path: str, problem: str
) -> None:
    tool = claude_memory.SlumberdMemoryTool(memory)

    with pytest.raises(tools.ToolError, match=problem):
        await create(tool, path, "x")

    assert (await memory.facts()).facts == []


async def test_text_with_half_a_character_is_refused(memory: Memory) -> None:
    with pytest.raises(tools.ToolError, match="half a character"):
        await create(claude_memory.SlumberdMemoryTool(memory), "/memories/a", "\ud800")


class EditingMemory(Memory):
    """A memory that another program edits between a read and a write.

    Attributes:
        edit: Runs once, before the next correction.
    """

    edit: Any = None

    async def correct(self, **given: Any) -> Any:
        if self.edit is not None:
            edit, self.edit = self.edit, None
            await edit()
        return await super().correct(**given)


@pytest.mark.parametrize("change", ["insert", "delete"])
async def test_edit_of_a_file_that_was_changed_meanwhile_is_refused(
    memory: Memory, change: str
) -> None:
    path = "/memories/a"
    more = {"insert_line": 0, "insert_text": "theirs"} if change == "insert" else {}
    theirs = claude_memory.SlumberdMemoryTool(memory)
    slow = EditingMemory(memory._transport, user="ann", agent="default", session="s")
    ours = claude_memory.SlumberdMemoryTool(slow)
    await create(ours, path, "x")
    slow.edit = lambda: call(theirs, change, path=path, **more)

    with pytest.raises(tools.ToolError, match="changed meanwhile"):
        await call(ours, "str_replace", path=path, old_str="x", new_str="y")

    left = await answer_of(theirs, {"command": "view", "path": path})
    assert ("theirs" in left) == (change == "insert")
    assert "y" not in left.split("\n", 1)[-1]


async def test_directory_is_moved_and_cleared_whole(memory: Memory) -> None:
    tool = claude_memory.SlumberdMemoryTool(memory)
    await create(tool, "/memories/a/1", "one")
    await create(tool, "/memories/a/b/2", "two")
    await create(tool, "/memories/ab", "three")

    await call(tool, "rename", old_path="/memories/a", new_path="/memories/z/y")
    moved = await view(tool, "/memories/z")
    inner = await answer_of(
        tool, {"command": "rename", "old_path": "/memories/z", "new_path": "/memories/z/z"}
    )
    await tool.clear_all_memory()

    assert moved.split("\n")[1:] == [
        "6B\t/memories/z", "6B\t/memories/z/y/", "3B\t/memories/z/y/1", "3B\t/memories/z/y/b/",
    ]  # fmt: skip
    assert inner == "error: Cannot move /memories/z into itself"
    assert (await memory.facts()).facts == []


async def test_facts_that_a_rule_made_are_no_files(memory: Memory) -> None:
    await memory.remember("x", triples=[("/memories/a", claude_memory.PREDICATE, 7)], id="e")
    await memory.wait_for("e")

    assert "/memories/a" not in await view(claude_memory.SlumberdMemoryTool(memory))


async def test_failure_of_the_daemon_is_an_error_of_the_tool(tmp_path: Path) -> None:
    async with Memory.open(f"unix:{tmp_path}", user="ann") as memory:
        with pytest.raises(tools.ToolError, match="no slumberd runs"):
            await view(claude_memory.SlumberdMemoryTool(memory))


def test_tool_describes_itself_as_the_memory_tool(shared: SyncMemory) -> None:
    tool = claude_memory.SlumberdMemoryTool(shared._memory, cache_control={"type": "ephemeral"})

    assert tool.to_dict() == {
        "type": "memory_20250818", "name": "memory", "cache_control": {"type": "ephemeral"},
    }  # fmt: skip
