"""`slumberd recent`: show the latest episodes of a user."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from slumberd.cli.context import settings_of
from slumberd.cli.empty_results import no_episodes
from slumberd.cli.options import MOST, Config, Json, StateDir
from slumberd.cli.output import print_json_lines, print_table
from slumberd.daemon.one_read import read_operation, unbounded
from slumberd.logs.lines import timestamp
from slumberd.model.episode import Episode
from slumberd.operations.episodes import EpisodeReads, EpisodesForm, KnownEpisode

COLUMNS = ("id", "at", "session", "agent", "content")


def recent(
    user: Annotated[str, typer.Argument(help="The id of the user.")],
    session: Annotated[str | None, typer.Option(help="Only episodes of this session.")] = None,
    agent: Annotated[str | None, typer.Option(help="Only episodes of this agent.")] = None,
    limit: Annotated[
        int, typer.Option(min=1, max=MOST, metavar="N", help="Show at most N episodes.")
    ] = 20,
    json: Json = False,
    config: Config = None,
    state_dir: StateDir = None,
) -> None:
    """Show the latest episodes of a user, newest first.

    With --json, each episode is printed on a line, in the form that `slumberd import` reads.
    """
    settings = settings_of(config, state_dir, user=user)
    wanted = unbounded(EpisodesForm, user=user, session=session, agent=agent, limit=limit)
    episodes = read_operation(settings, EpisodeReads.episodes, wanted).episodes
    if json:
        print_json_lines(document(episode) for episode in episodes)
    else:
        narrowed = session is not None or agent is not None
        empty = "" if episodes else no_episodes(settings, user, narrowed=narrowed)
        print_table(COLUMNS, (_row(episode) for episode in episodes), empty=empty)


def _row(episode: KnownEpisode) -> tuple[object, ...]:
    return episode.id, episode.timestamp, episode.session, episode.agent, episode.content


def document(episode: Episode | KnownEpisode) -> dict[str, Any]:
    """Return the JSON form of an episode."""
    return {
        "id": episode.id,
        "content": episode.content,
        "timestamp": timestamp(episode.timestamp),
        "source_node": episode.source_node,
        "agent": episode.agent,
        "user": episode.user,
        "session": episode.session,
        "metadata": episode.metadata,
    }
