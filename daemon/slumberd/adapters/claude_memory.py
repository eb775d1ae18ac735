"""Claude's memory tool, with facts beneath. Needs the extra ``claude``."""

from __future__ import annotations

import asyncio

from slumberd.adapters.memory_directory import (
    ROOT,
    MemoryFileError,
    below,
    file_above,
    inserted,
    is_directory,
    listing,
    numbered,
    replaced,
    resolve,
)
from slumberd.adapters.named_facts import NamedFacts
from slumberd.client.memory import Memory
from slumberd.errors import (
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
