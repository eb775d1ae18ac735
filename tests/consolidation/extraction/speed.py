"""Measure how many turns of chats the extractor `conversation` reads in a second.

`python -m tests.consolidation.extraction.speed DIR` reads the chats of REALTALK from a directory;
without one it reads the sentences of the tests.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import yaml

from slumberd.consolidation.extraction.conversation import ConversationExtractor
from slumberd.consolidation.extraction.english_parser import PARSER
from slumberd.consolidation.extraction.turns import previous_turns
from slumberd.model.extraction import Turn
from slumberd.rules.vocabulary_loader import shipped_vocabulary
from tests.consolidation.extraction.sheet import turns_of

_SENTENCES = Path(__file__).parent / "conversation_sentences.yaml"


def main() -> None:
    """Print the turns in a second of processor time."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("directory", type=Path, nargs="?")
    parser.add_argument("--parser", action="store_true", help="parse the sentences, too")
    arguments = parser.parse_args()
    directory = arguments.directory
    turns = _sentences() if directory is None else _chats(directory)
    extractor = ConversationExtractor(
        shipped_vocabulary(), {}, PARSER if arguments.parser else None
    )
    before = previous_turns(turns)
    extractor.extract(turns[:10], before[:10])
    begun = time.thread_time()
    found = extractor.extract(turns, before)
    seconds = time.thread_time() - begun
    triples = sum(map(len, found))
    print(f"{len(turns)} turns, {triples} triples: {len(turns) / seconds:,.0f} turns a second")


def _chats(directory: Path) -> list[Turn]:
    return [turn for file in sorted(directory.glob("*.json")) for turn in turns_of(file)]


def _sentences() -> list[Turn]:
    groups = yaml.safe_load(_SENTENCES.read_text(encoding="utf-8"))
    says = [case["says"] for cases in groups.values() for case in cases]
    return [
        Turn(f"e{number}", "s", "user", text, number, "ada", "bot", True)
        for number, text in enumerate(says * 10)
    ]


if __name__ == "__main__":
    main()
