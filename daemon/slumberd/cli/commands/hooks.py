"""`slumberd hooks` installs hooks in the settings of coding agents; `slumberd hook` is a hook."""

from __future__ import annotations

import difflib
import os
import pwd
import shlex
import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from slumberd.cli.asking import ask_daemon
from slumberd.cli.context import settings_of
from slumberd.cli.environment import directory_named
from slumberd.cli.exit_codes import say
from slumberd.cli.options import Config, DryRun, StateDir
from slumberd.cli.registry import examples
from slumberd.integrations.hooks.agents import AGENTS, CLAUDE_CODE, CODEX, CodingAgent
from slumberd.integrations.hooks.command import run_on_standard_streams
from slumberd.integrations.hooks.installation import AgentSettings, SettingsFile
from slumberd.logs.lines import printable
from slumberd.rules.settings import Settings

hooks = typer.Typer(
    add_completion=False,
    rich_markup_mode=None,
    help="Install hooks in the settings of a coding agent, or remove them.",
)


class Name(StrEnum):
    """The coding agents."""

    CLAUDE_CODE = CLAUDE_CODE.name
    CODEX = CODEX.name


Named = Annotated[Name, typer.Argument(help="The coding agent.", show_default=False)]
Project = Annotated[
    Path | None,
    typer.Option(
        metavar="DIR", help="Only in this project. [default: in all projects of the user]"
    ),
]
User = Annotated[
    str | None,
    typer.Option(metavar="U", help="Whose memory it is. [default: your name on this machine]"),
]
Agent = Annotated[
    str | None,
    typer.Option(
        metavar="A",
        help="Which agent's memory it is; agents with one name share it. [default: CODING-AGENT]",
    ),
]


@hooks.command(
    "install",
    epilog=examples(
        "slumberd hooks install claude-code --dry-run",
        "slumberd hooks install claude-code --user ada",
        "slumberd hooks install codex --project ~/src/app --agent app",
    ),
)
def install(
    coding_agent: Named,
    user: User = None,
    agent: Agent = None,
    project: Project = None,
    dry_run: DryRun = False,
    config: Config = None,
    state_dir: StateDir = None,
) -> None:
    """Install hooks: a coding agent then remembers its sessions, and recalls them.

    At the start of a session, the agent takes a context. With each prompt, it takes a few
    memories. After an answer, before a compaction and at the end, the new turns are put as
    episodes. The hooks need a daemon on the state directory; without one they do nothing, and lose
    nothing.

    The command keeps all other text of the settings. When it is called again, it replaces the
    hooks.
    """
    chosen = AGENTS[coding_agent.value]
    settings = settings_of(config, state_dir)
    directory = settings.state_dir.absolute()
    command = shlex.join(
        [
            *_program(), "hook", chosen.name,
            "--user", user or pwd.getpwuid(os.getuid()).pw_name,
            "--agent", agent or chosen.name,
            "--state-dir", str(directory),
            "--cursors", str(_state_home() / "cursors"),
        ]
    )  # fmt: skip
    file = _settings_file(chosen, project)
    before, after = file.read(), file.installed(command)
    if before == after:
        print(f"the hooks are in {printable(str(file.path))} already")
        return
    _write(file, before, after, dry_run=dry_run)
    if not dry_run:
        print(f"installed the hooks of {chosen.name} in {printable(str(file.path))}")
        _say_what_is_left(chosen, settings)


@hooks.command(
    "uninstall",
    epilog=examples(
        "slumberd hooks uninstall claude-code", "slumberd hooks uninstall codex --project ."
    ),
)
def uninstall(coding_agent: Named, project: Project = None, dry_run: DryRun = False) -> None:
    """Remove the hooks from the settings of a coding agent.

    When nobody else has edited the settings since, they are restored byte for byte. Otherwise only
    the hooks of slumberd are removed. What was remembered stays.
    """
    chosen = AGENTS[coding_agent.value]
    file = _settings_file(chosen, project)
    before, after = file.read(), file.uninstalled()
    if before == after:
        print(f"no hooks of slumberd are in {printable(str(file.path))}")
        return
    _write(file, before, after, dry_run=dry_run)
    if not dry_run:
        print(f"removed the hooks of {chosen.name} from {printable(str(file.path))}")


def hook(
    coding_agent: Named,
    user: Annotated[str, typer.Option(metavar="U", help="Whose memory it is.")],
    agent: Annotated[str, typer.Option(metavar="A", help="Which agent's memory it is.")],
    state_dir: Annotated[Path, typer.Option(metavar="DIR", help="Where the daemon runs.")],
    cursors: Annotated[
        Path, typer.Option(metavar="DIR", help="Where to keep how far transcripts are put.")
    ],
) -> None:
    """Answer one event of a coding agent.

    `slumberd hooks install` writes calls of this command. It reads the event from standard input,
    as JSON, and prints what the agent takes as context. It ends within two seconds with exit code
    0, also without a daemon.
    """
    words = [
        coding_agent.value, "--user", user, "--agent", agent, "--state-dir", str(state_dir),
        "--cursors", str(cursors),
    ]  # fmt: skip
    raise typer.Exit(run_on_standard_streams(words))


def _program() -> list[str]:
    """Return the words that call slumberd from any directory."""
    script = Path(sys.argv[0])
    if script.name == "slumberd" and script.is_file():
        return [str(script.absolute())]
    return [sys.executable, "-m", "slumberd"]


def _state_home() -> Path:
    """Return the directory where hooks keep their state."""
    default = Path.home() / ".local" / "state"
    return directory_named("XDG_STATE_HOME", default).absolute() / "slumberd" / "hooks"


def _settings_file(agent: CodingAgent, project: Path | None) -> SettingsFile:
    """Return the settings of an agent: of a project, or of the user."""
    if project is None:
        home = directory_named(agent.home_variable, Path.home() / agent.home)
        path = home / agent.user_file
    else:
        path = project / agent.home / agent.project_file
    return SettingsFile(path.absolute(), agent, _state_home() / "installed")


def _write(
    file: SettingsFile, before: AgentSettings, after: AgentSettings, *, dry_run: bool
) -> None:
    """Write settings, or show how they would change."""
    if not dry_run:
        file.write(after)
        return
    name = printable(str(file.path))
    lines = difflib.unified_diff(
        before.text.splitlines(), after.text.splitlines(), name, name, lineterm=""
    )
    for line in lines:
        print(printable(line))


def _say_what_is_left(agent: CodingAgent, settings: Settings) -> None:
    if agent.note:
        print(agent.note)
    status, findings = ask_daemon(settings)
    if status is None and not findings:
        directory = str(settings.state_dir.absolute())
        say(f"no slumberd runs on {directory!r} yet; start it with `slumberd run`")
