"""Claude's memory tool, with facts beneath. Needs the extra ``claude``.

The second half edits the texts of the files. Its messages are those of Anthropic's own tool for a
local directory, because models know them.
"""

from __future__ import annotations

import asyncio
import posixpath
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence

from slumberd.client.memory import Memory
from slumberd.integrations.named_facts import NamedFacts
from slumberd.model.errors import (
    ExtraMissingError,
    NoInputError,
    SlumberdError,
    VersionConflictError,
)
from slumberd.operations.facts import KnownFact

try:
    from anthropic.lib.tools import (
        BetaAsyncAbstractMemoryTool,
        BetaFunctionToolResultType,
        ToolError,
    )
    from anthropic.types.beta import (
        BetaCacheControlEphemeralParam,
        BetaMemoryTool20250818Command,
        BetaMemoryTool20250818CreateCommand,
        BetaMemoryTool20250818DeleteCommand,
        BetaMemoryTool20250818InsertCommand,
        BetaMemoryTool20250818RenameCommand,
        BetaMemoryTool20250818StrReplaceCommand,
        BetaMemoryTool20250818ViewCommand,
    )
except ImportError as error:
    raise ExtraMissingError("claude", "Claude's memory tool cannot be offered") from error


PREDICATE = "claude_memory_file"
"""The predicate of all facts that keep files; the subject is the path, the object the text."""


class SlumberdMemoryTool(BetaAsyncAbstractMemoryTool):
    """Claude's memory files as facts: the ledger keeps each change, and can undo it.

    The tool reaches the files of one user and one agent, those of the memory. A directory exists
    while it has files.

    Args:
        memory: The memory of the user.
        cache_control: As Anthropic's own tools take it.
    """

    def __init__(
        self, memory: Memory, *, cache_control: BetaCacheControlEphemeralParam | None = None
    ) -> None:
        super().__init__(cache_control=cache_control)
        self._facts = NamedFacts(memory, PREDICATE)
        self._turn = asyncio.Lock()

    async def execute(self, command: BetaMemoryTool20250818Command) -> BetaFunctionToolResultType:
        """Run one command after the other; return the answer for the model.

        Raises:
            ToolError: The command is impossible, or failed; its text is for the model.
        """
        try:
            async with self._turn:
                return await super().execute(command)
        except (NoInputError, VersionConflictError) as error:
            raise ToolError("The file was changed meanwhile. View it again.") from error
        except (MemoryFileError, SlumberdError) as error:
            raise ToolError(str(error)) from error

    async def view(self, command: BetaMemoryTool20250818ViewCommand) -> str:
        """Return the text of a file with line numbers, or the entries of a directory."""
        path, files = resolve(command.path), await self._files()
        if path in files:
            return numbered(_text(files[path]), command.path, command.view_range)
        if is_directory(path, files):
            texts = {path: _text(fact) for path, fact in files.items()}
            return listing(path, command.path, texts)
        raise MemoryFileError(_missing_to_view(command.path))

    async def create(self, command: BetaMemoryTool20250818CreateCommand) -> str:
        """Make a new file."""
        path, files = resolve(command.path), await self._files()
        if path in files or is_directory(path, files):
            raise MemoryFileError(f"File {command.path} already exists")
        _check_directories(path, files)
        await self._write(path, command.file_text, "create")
        return f"File created successfully at: {command.path}"

    async def str_replace(self, command: BetaMemoryTool20250818StrReplaceCommand) -> str:
        """Replace a part of a file that occurs once."""
        fact = await self._file(command.path)
        text, answer = replaced(_text(fact), command.path, command.old_str, command.new_str)
        await self._write(_path(fact), text, "str_replace", known=fact)
        return answer

    async def insert(self, command: BetaMemoryTool20250818InsertCommand) -> str:
        """Insert lines into a file."""
        fact = await self._file(command.path)
        text = inserted(_text(fact), command.insert_line, command.insert_text)
        await self._write(_path(fact), text, "insert", known=fact)
        return f"The file {command.path} has been edited."

    async def delete(self, command: BetaMemoryTool20250818DeleteCommand) -> str:
        """Retract a file, or all files of a directory."""
        path, files = resolve(command.path), await self._files()
        if path == ROOT:
            raise MemoryFileError(f"Cannot delete the {ROOT} directory itself")
        found = below(path, files)
        if not found:
            raise MemoryFileError(f"The path {command.path} does not exist")
        for file in found:
            await self._facts.remove(file, reason=_reason("delete"), known=files[file])
        return f"Successfully deleted {command.path}"

    async def rename(self, command: BetaMemoryTool20250818RenameCommand) -> str:
        """Move a file, or all files of a directory: the new fact comes, then the old one goes."""
        old, new = resolve(command.old_path), resolve(command.new_path)
        files = await self._files()
        if old == ROOT:
            raise MemoryFileError(f"Cannot rename the {ROOT} directory itself")
        if new in files or is_directory(new, files):
            raise MemoryFileError(f"The destination {command.new_path} already exists")
        found = below(old, files)
        if not found:
            raise MemoryFileError(f"The path {command.old_path} does not exist")
        if new.startswith(f"{old}/"):
            raise MemoryFileError(f"Cannot move {command.old_path} into itself")
        _check_directories(new, files)
        for file in found:
            await self._write(new + file.removeprefix(old), _text(files[file]), "rename")
            await self._facts.remove(file, reason=_reason("rename"), known=files[file])
        return f"Successfully renamed {command.old_path} to {command.new_path}"

    async def clear_all_memory(self) -> str:
        """Retract all files."""
        async with self._turn:
            for path, fact in (await self._files()).items():
                await self._facts.remove(path, reason=_reason("clear"), known=fact)
        return "All memory cleared"

    async def _files(self) -> dict[str, KnownFact]:
        """Return the facts that keep files, by path; a rule may have made others."""
        found = await self._facts.under(f"{ROOT}/")
        return {_path(fact): fact for fact in found if isinstance(fact.payload["object"], str)}

    async def _file(self, named: str) -> KnownFact:
        """Return the fact of a file that a command edits.

        Raises:
            MemoryFileError: There is no such file.
        """
        path, files = resolve(named), await self._files()
        if path in files:
            return files[path]
        if is_directory(path, files):
            raise MemoryFileError(f"The path {named} is not a file.")
        raise MemoryFileError(_missing_to_view(named))

    async def _write(
        self, path: str, text: str, command: str, known: KnownFact | None = None
    ) -> None:
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise MemoryFileError("The text holds half a character, which UTF-8 has not") from error
        await self._facts.put(path, text, reason=_reason(command), known=known)


def _reason(command: str) -> str:
    return f"Claude's memory tool: {command}"


def _missing_to_view(named: str) -> str:
    return f"The path {named} does not exist. Please provide a valid path."


def _check_directories(path: str, files: dict[str, KnownFact]) -> None:
    """Check that a file may be at a path.

    Raises:
        MemoryFileError: A part of the path is a file.
    """
    above = file_above(path, files)
    if above is not None:
        raise MemoryFileError(f"The path {above} is not a directory.")


def _path(fact: KnownFact) -> str:
    return str(fact.payload["subject"])


def _text(fact: KnownFact) -> str:
    return str(fact.payload["object"])


ROOT = "/memories"


MOST_LINES = 999_999


_WIDTH = len(str(MOST_LINES))


_LEVELS = 2
"""A listing shows a directory, its entries, and the entries of these."""


_AROUND = 2
"""An answer to an edit shows so many lines before and after the changed one."""


_UNITS = ("B", "K", "M", "G")


class MemoryFileError(Exception):
    """A command on the directory is impossible.

    The message is for the model; the tool raises it as an error of its own package.
    """


def resolve(path: str) -> str:
    """Return a path without ``.``, ``..`` and double slashes.

    Raises:
        MemoryFileError: It does not lie in the directory.
    """
    if path != ROOT and not path.startswith(f"{ROOT}/"):
        raise MemoryFileError(f"Path must start with {ROOT}, got: {path}")
    resolved = posixpath.normpath(path)
    if resolved != ROOT and not resolved.startswith(f"{ROOT}/"):
        raise MemoryFileError(f"Path {path} would escape {ROOT} directory")
    if any(unicodedata.category(character) in ("Cc", "Cs") for character in resolved):
        raise MemoryFileError(f"Path {path!r} holds a control character")
    return resolved


def is_directory(path: str, files: Iterable[str]) -> bool:
    """Return whether a resolved path is the root, or has files below it."""
    return path == ROOT or any(file.startswith(f"{path}/") for file in files)


def below(path: str, files: Iterable[str]) -> list[str]:
    """Return the file of a resolved path, or all files below it, in order."""
    return sorted(file for file in files if file == path or file.startswith(f"{path}/"))


def file_above(path: str, files: Iterable[str]) -> str | None:
    """Return the file that a path would need as a directory; None without one."""
    return next((file for file in files if path.startswith(f"{file}/")), None)


def listing(path: str, named: str, files: Mapping[str, str]) -> str:
    """Return the entries of a directory, two levels deep, without hidden ones.

    Args:
        path: The resolved path of the directory.
        named: The path as the command names it.
        files: The texts of all files, by resolved path.
    """
    header = (
        f"Here're the files and directories up to {_LEVELS} levels deep in {named}, "
        "excluding hidden items:"
    )
    entries = [f"{size}\t{named}/{entry}" for size, entry in _entries(path, files, _LEVELS)]
    return "\n".join([header, f"{_size_below(path, files)}\t{named}", *entries])


def _entries(path: str, files: Mapping[str, str], levels: int) -> Iterator[tuple[str, str]]:
    """Yield size and relative path of the entries of a directory, each before its own entries."""
    names = {file.removeprefix(f"{path}/").split("/")[0] for file in below(path, files)}
    for name in sorted(name for name in names if not name.startswith(".")):
        entry = f"{path}/{name}"
        if entry in files:
            yield _size_below(entry, files), name
            continue
        yield _size_below(entry, files), f"{name}/"
        if levels > 1:
            for size, inner in _entries(entry, files, levels - 1):
                yield size, f"{name}/{inner}"


def _size_below(path: str, files: Mapping[str, str]) -> str:
    """Return the size of a file, or of all files of a directory, such as ``1.5K``."""
    size = float(sum(len(files[file].encode()) for file in below(path, files)))
    unit = 0
    while size >= 1_024 and unit < len(_UNITS) - 1:
        size, unit = size / 1_024, unit + 1
    text = f"{int(size)}" if size == int(size) else f"{size:.1f}"
    return text + _UNITS[unit]


def numbered(text: str, named: str, view_range: Sequence[int] | None) -> str:
    """Return the lines of a file with their numbers.

    Args:
        text: The text of the file.
        named: The path as the command names it.
        view_range: The first and the last line, from 1; -1 means the end. None means all.

    Raises:
        MemoryFileError: The file has too many lines.
    """
    lines = text.split("\n")
    if len(lines) > MOST_LINES:
        raise MemoryFileError(f"File {named} exceeds maximum line limit of {MOST_LINES:,} lines.")
    first, end = 0, len(lines)
    if view_range and len(view_range) == 2:
        first = max(1, view_range[0]) - 1
        end = end if view_range[1] == -1 else view_range[1]
    shown = _with_numbers(lines[first:end], first + 1)
    return f"Here's the content of {named} with line numbers:\n" + "\n".join(shown)


def _with_numbers(lines: Iterable[str], first: int) -> list[str]:
    return [f"{str(number).rjust(_WIDTH)}\t{line}" for number, line in enumerate(lines, first)]


def replaced(text: str, named: str, old: str, new: str) -> tuple[str, str]:
    """Return a text with the only occurrence of a part replaced, and the answer to the edit.

    Raises:
        MemoryFileError: The part occurs not at all, or more than once.
    """
    places = [*_places(text, old)]
    if not places:
        raise MemoryFileError(
            f"No replacement was performed, old_str `{old}` did not appear verbatim in {named}."
        )
    if text.count(old) > 1:
        lines = ", ".join(str(text.count("\n", 0, place) + 1) for place in places)
        raise MemoryFileError(
            f"No replacement was performed. Multiple occurrences of old_str `{old}` "
            f"in lines: {lines}. Please ensure it is unique"
        )
    changed = text.replace(old, new)
    line, lines_now = text.count("\n", 0, places[0]), changed.split("\n")
    first = max(0, line - _AROUND)
    snippet = _with_numbers(lines_now[first : line + _AROUND + 1], first + 1)
    header = (
        "The memory file has been edited. "
        "Here is the snippet showing the change (with line numbers):"
    )
    return changed, "\n".join([header, *snippet])


def _places(text: str, part: str) -> Iterator[int]:
    """Yield where a part begins in a text, overlapping ones too."""
    place = text.find(part)
    while place != -1:
        yield place
        place = text.find(part, place + 1)


def inserted(text: str, line: int, new: str) -> str:
    """Return a text with lines inserted after a line; it ends with a line feed.

    Args:
        line: The number of the line before; 0 inserts at the beginning.
        new: The new lines.

    Raises:
        MemoryFileError: There is no such line.
    """
    lines = text.split("\n")
    if lines[-1] == "":
        lines.pop()
    if not 0 <= line <= len(lines):
        raise MemoryFileError(
            f"Invalid `insert_line` parameter: {line}. "
            f"It should be within the range [0, {len(lines)}]."
        )
    lines.insert(line, new.rstrip("\n"))
    joined = "\n".join(lines)
    return joined if joined.endswith("\n") else f"{joined}\n"
