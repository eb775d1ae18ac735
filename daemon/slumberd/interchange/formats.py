"""The table of the formats that can be read."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import BinaryIO

from slumberd.interchange import graphiti, langgraph, mcp_memory, mem0, notes
from slumberd.interchange.episode_lines import read_episode_lines
from slumberd.interchange.notes import Folder
from slumberd.interchange.records import Defaults, Record

EPISODES = "episodes"
"""The format of `slumberd export`."""


@dataclass(frozen=True, slots=True)
class FileFormat:
    """A format of single files.

    Attributes:
        read: Returns the records of a file.
        names_user: Whether the records may name their user.
        multi_valued: The predicates that have several objects at once, by the format itself.
        lasting: Whether a claim holds until its record says that it ended. In any other format,
            the next claim of its subject and predicate ends it.
        side_by_side: Whether statements of one subject and predicate hold at the same time.
        limit: How many records the program returns, unless its caller asks for more; None when it
            returns all.
    """

    read: Callable[[BinaryIO, Defaults], Iterator[Record]]
    names_user: bool = True
    multi_valued: frozenset[str] = frozenset()
    lasting: bool = False
    side_by_side: bool = False
    limit: int | None = None


@dataclass(frozen=True, slots=True)
class FolderFormat:
    """A format of folders; its records name no user."""

    read: Callable[[Folder, Defaults], Iterator[Record]]


def _read_episodes(stream: BinaryIO, defaults: Defaults) -> Iterator[Record]:
    return read_episode_lines(stream, defaults.scope, secrets=defaults.secrets)


FORMATS: dict[str, FileFormat | FolderFormat] = {
    EPISODES: FileFormat(_read_episodes),
    mem0.NAME: FileFormat(mem0.read_mem0, limit=100),
    graphiti.NAME: FileFormat(graphiti.read_graphiti, lasting=True, side_by_side=True),
    mcp_memory.NAME: FileFormat(
        mcp_memory.read_mcp_memory,
        names_user=False,
        multi_valued=frozenset({mcp_memory.OBSERVATION}),
        side_by_side=True,
    ),
    notes.CLAUDE: FolderFormat(notes.read_claude_folder),
    notes.CODEX: FolderFormat(notes.read_codex_folder),
    langgraph.NAME: FileFormat(langgraph.read_langgraph, limit=10),
}
"""The formats, by name."""
