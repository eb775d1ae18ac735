"""Read the recorded parses of sentences, and record them again.

`python -m tests.consolidation.extraction.parses` parses each sentence of `parsed_sentences.yaml`,
and writes the file again. It needs the extra `english`.
"""

from __future__ import annotations

import json
import textwrap
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import yaml

from slumberd.consolidation.extraction.english_parser import PARSER, Parsed, Word, parsed_clauses

FILE = Path(__file__).parent / "parsed_sentences.yaml"
_HEAD = """\
# Sentences that the parser of the extra `english` has read: each word with its part of speech, its
# role, and the place of its head; a last `<` says that no white space stands before the word.
# `clauses` are those that `parsed_clauses` writes; a `?` at the end marks one that is supposed.
# `python -m tests.consolidation.extraction.parses` writes this file again.
"""


def recorded() -> list[dict[str, Any]]:
    """Return the sentences of the file."""
    found: list[dict[str, Any]] = yaml.safe_load(FILE.read_text(encoding="utf-8"))
    return found


def parse_of(text: str) -> Parsed:
    """Return the words that a text of the file describes."""
    return tuple(_words(text.split()))


def _words(entries: Sequence[str]) -> Iterator[Word]:
    for place, entry in enumerate(entries):
        text, tag, role, head, *joined = entry.rsplit("/", 4 if entry.endswith("/<") else 3)
        yield Word(text, tag, role, int(head), place > 0 and not joined)


def written(words: Parsed) -> str:
    """Return the text of the file that describes words."""
    return " ".join(
        f"{word.text}/{word.tag}/{word.role}/{word.head}{'' if word.before or not place else '/<'}"
        for place, word in enumerate(words)
    )


def clauses_of(words: Parsed) -> list[str]:
    """Return the clauses of a sentence, as the file writes them."""
    return [clause.text + ("" if clause.asserted else "?") for clause in parsed_clauses(words)]


class RecordedParser:
    """Gives the recorded parses of sentences."""

    def __init__(self) -> None:
        self._parses = {one["says"]: parse_of(one["parse"]) for one in recorded()}

    def parse(self, sentences: Sequence[str]) -> list[Parsed]:
        """Return the words of sentences; one that is not recorded is an error."""
        return [self._parses[sentence] for sentence in sentences]


def main() -> None:
    """Write the file again."""
    cases = recorded()
    parts = [_HEAD]
    for case, words in zip(cases, PARSER.parse([one["says"] for one in cases]), strict=True):
        lines = textwrap.wrap(written(words), 95, break_long_words=False, break_on_hyphens=False)
        parts += [f"- says: {json.dumps(case['says'])}\n  parse: >-\n"]
        parts += [f"    {line}\n" for line in lines]
        parts += ["  clauses:\n", *(f"    - {json.dumps(one)}\n" for one in clauses_of(words))]
        if "states" in case:
            parts += [f"  states: {json.dumps(case['states'])}\n"]
    FILE.write_text("".join(parts), encoding="utf-8")


if __name__ == "__main__":
    main()
