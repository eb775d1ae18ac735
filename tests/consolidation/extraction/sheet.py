"""Print randomly drawn triples that chats of REALTALK state, for a person who reads them.

REALTALK is no part of the project: `python -m tests.consolidation.extraction.sheet DIR --count 150
--seed 1` reads its files from a directory.
"""

from __future__ import annotations

import argparse
import json
import random
import re
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

from slumberd.consolidation.extraction.conversation import ConversationExtractor
from slumberd.consolidation.extraction.english_parser import PARSER, EnglishParser
from slumberd.consolidation.extraction.turns import previous_turns
from slumberd.model.episode import microseconds
from slumberd.model.extraction import Extracted, Turn
from slumberd.rules.vocabulary_loader import shipped_vocabulary


def turns_of(file: Path) -> list[Turn]:
    """Return the turns of a chat. Each speaker is a person of that name."""
    chat = json.loads(file.read_text(encoding="utf-8"))
    turns: list[Turn] = []
    last: dict[tuple[str, str], Turn] = {}
    for session in (name for name in chat if re.fullmatch(r"session_\d+", name)):
        for row in chat[session]:
            speaker = str(row["speaker"])
            turn = Turn(
                f"{file.stem}:{row['dia_id']}", session, speaker, row.get("clean_text") or "",
                _instant(row["date_time"]) + len(turns), user=speaker, agent="chat", is_person=True,
                own_last=last.get((session, speaker)),
            )  # fmt: skip
            last[session, speaker] = turn._replace(own_last=None)
            turns.append(turn)
    return turns


def _instant(text: str) -> int:
    return microseconds(datetime.strptime(text, "%d.%m.%Y, %H:%M:%S").replace(tzinfo=UTC))


def stated(folder: Path, parser: EnglishParser | None) -> Iterator[tuple[Turn, Extracted]]:
    """Yield what the chats of a directory state, without retractions of opposites."""
    extractor = ConversationExtractor(shipped_vocabulary(), {}, parser)
    for file in sorted(folder.glob("*.json")):
        turns = turns_of(file)
        found = extractor.extract(turns, previous_turns(turns))
        for turn, triples in zip(turns, found, strict=True):
            for triple in triples:
                if triple.intent == "add":
                    yield turn, triple


def main() -> None:
    """Print the sheet."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("directory", type=Path)
    parser.add_argument("--count", type=int, default=150)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--parser", action="store_true", help="parse the sentences, too")
    arguments = parser.parse_args()
    found = [*stated(arguments.directory, PARSER if arguments.parser else None)]
    drawn = random.Random(arguments.seed).sample(found, min(arguments.count, len(found)))
    print(f"{len(found)} triples, {len(drawn)} drawn with seed {arguments.seed}")
    for number, (turn, triple) in enumerate(drawn, start=1):
        start, end = triple.span
        print(f"{number}\t{triple.subject}\t{triple.predicate}\t{triple.object}\t{triple.by}")
        print(f"\t{turn.content[start:end]}")


if __name__ == "__main__":
    main()
