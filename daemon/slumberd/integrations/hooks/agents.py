"""The coding agents that hooks can be installed in: their files, their events and their limits."""

from __future__ import annotations

from typing import NamedTuple

SESSION_START = "SessionStart"
PROMPT = "UserPromptSubmit"
STOP = "Stop"
BEFORE_COMPACTION = "PreCompact"
SESSION_END = "SessionEnd"

EVENTS = (SESSION_START, PROMPT, STOP, BEFORE_COMPACTION, SESSION_END)
"""The events that hooks are installed for, by the names that the agents give them."""

PUTTING = frozenset({STOP, BEFORE_COMPACTION, SESSION_END})
"""The events after which the new turns of a transcript are put."""


OPTIONS = ("--user", "--agent", "--state-dir", "--cursors")
"""The options of the command of a hook; an installation writes each once, with its value."""


class CodingAgent(NamedTuple):
    """A coding agent.

    Attributes:
        name: Its name on the command line.
        home_variable: The environment variable that may name its home directory.
        home: The name of that directory, in the home of the user and in a project.
        user_file: The file of its hooks, in the home of the user.
        project_file: The file of its hooks in a project, for one person on one machine.
        timeout_seconds: How long it waits for a hook; a hook ends earlier by itself.
        note: What a person must do after the installation; empty for nothing.
    """

    name: str
    home_variable: str
    home: str
    user_file: str
    project_file: str
    timeout_seconds: int
    note: str


CLAUDE_CODE = CodingAgent(
    name="claude-code",
    home_variable="CLAUDE_CONFIG_DIR",
    home=".claude",
    user_file="settings.json",
    # The command names paths of this machine, so it does not belong into the file that is shared.
    project_file="settings.local.json",
    timeout_seconds=5,
    note="",
)
CODEX = CodingAgent(
    name="codex",
    home_variable="CODEX_HOME",
    home=".codex",
    user_file="hooks.json",
    project_file="hooks.json",
    timeout_seconds=3,  # Codex allows no more at the end of a session
    note="codex runs new hooks after you trust them: start codex, and enter /hooks",
)
AGENTS = {agent.name: agent for agent in (CLAUDE_CODE, CODEX)}
"""The coding agents, by name."""
