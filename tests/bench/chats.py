"""Bench: plain chats become facts, by the rules of a new directory, in files and on PostgreSQL.

The rules read a turn with the turns before it: the last one of the other speaker, and the last one
of the same speaker. With one speaker, slumberd reads all last 50 turns to look for another speaker.
"""

from __future__ import annotations

import random
import shutil
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import orjson

from tests.bench.databases import Workshop
from tests.bench.measuring import Cost, Table, run
from tests.support.builders import START
from tests.support.postgres_server import MISSING, programs, running_server_on_disk

SECTION = "chats"

TURNS_OF_SESSION = 50

SPEAKERS = {"two speakers": ("user", "assistant"), "one speaker": ("user",)}

_THINGS = "bread", "chess", "jazz", "tea", "snow", "maps", "trains", "opera", "goats", "paint"
_PLACES = "Oslo", "Lima", "Bern", "Turin", "Accra", "Quito", "Kyoto", "Cork", "Tunis", "Riga"
_SAID = (
    "I live in {place} now, and I like {thing}.",
    "My sister moved to {place} last year.",
    "I don't like {thing} any more.",
    "Yesterday it rained, so we stayed at home and talked about {thing}.",
    "I work as a teacher in {place}.",
    "Thanks, that helps a lot!",
)
_ASKED = (
    "Do you like {thing}?",
    "Where do you live?",
    "Shall I look for trains to {place}?",
    "That sounds good. What else can you tell me about {thing}?",
)


def measure(table: Table, shop: Workshop) -> None:
    """Import a chat into a new directory or database, and fire; each kind in turns."""
    count = shop.small // 2
    with ExitStack() as stack:
        server = None
        if programs() is None:
            print(f"{SECTION}: {MISSING}", file=sys.stderr)
        else:
            server = stack.enter_context(running_server_on_disk(fsync="on"))
        for kind, speakers in SPEAKERS.items():
            source = shop.folder / "chat.jsonl"
            source.write_bytes(b"\n".join(map(orjson.dumps, _turns(count, speakers))))
            costs: dict[str, list[Cost]] = {"files": [], "PostgreSQL": []}
            for _ in shop.turns():
                costs["files"].append(_fire(shop, source))
                if server is not None:
                    with server.database() as name:
                        costs["PostgreSQL"].append(_fire(shop, source, server.address_of(name)))
            for engine, some in costs.items():
                if some:
                    table.seconds(SECTION, f"{count:,} turns, {kind}, {engine}", some)


def _fire(shop: Workshop, source: Path, address: str | None = None) -> Cost:
    """Return what the firing takes, as a command; that of PostgreSQL without the server's work."""
    folder = shop.folder / "chat"
    shutil.rmtree(folder, ignore_errors=True)
    run(_command("init", folder))
    config = folder / "slumberd.yaml"
    if address is not None:
        with config.open("a") as file:
            file.write(f"store: {address}\n")
    of_folder = partial(_command, "--config", config)
    run(of_folder("import", source))
    cost = run(of_folder("fire", "--all"))
    shutil.rmtree(folder)
    return cost


def _command(*words: str | Path) -> list[str | Path]:
    return [sys.executable, "-m", "slumberd", *words]


def _turns(count: int, speakers: tuple[str, ...]) -> Iterator[dict[str, Any]]:
    """Yield the turns of sessions, each of another user."""
    chance = random.Random(11)
    for number in range(count):
        session = number // TURNS_OF_SESSION
        speaker = speakers[number % len(speakers)]
        sentence = chance.choice(_SAID if speaker == "user" else _ASKED)
        yield {
            "id": f"turn-{number:06}",
            "user": f"user-{session}",
            "agent": "agent",
            "session": f"session-{session}",
            "source_node": "chat",
            "content": sentence.format(thing=chance.choice(_THINGS), place=chance.choice(_PLACES)),
            "timestamp": (START + timedelta(seconds=number)).isoformat(),
            "metadata": {"speaker": speaker},
        }
