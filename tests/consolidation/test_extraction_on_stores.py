"""Rules that extract triples from text, on real stores."""

from __future__ import annotations

import asyncio
import random
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from slumberd.model.episode import Episode
from slumberd.model.extraction import Extracted, Extraction, Turn
from slumberd.model.fact import FactPattern
from slumberd.model.firing import Counts
from slumberd.model.rule import ConsolidationRule
from slumberd.model.scope import PLACEHOLDER_KEY
from slumberd.rules.pattern_loader import extraction_of
from slumberd.rules.vocabulary_loader import conversation_extraction
from slumberd.rules.yaml_reader import read_document
from tests.support.builders import START, at, episode, rule, triple
from tests.support.open_stores import open_stores
from tests.support.providers import Provider
from tests.support.repository import ROOT
from tests.support.sample_sizes import amount
from tests.support.stargraph_rows import INSERT, row_of

pytestmark = pytest.mark.integration

BOOKING = ROOT / "docs" / "examples" / "booking.yaml"
SENTENCES = conversation_extraction({"chat": "ada"})


class AnswersOf:
    """Extracts the pair of a turn and of the turn before, so that a test sees both."""

    def extract(
        self, turns: Sequence[Turn], before: Sequence[Turn | None]
    ) -> list[list[Extracted]]:
        pairs = zip(turns, before, strict=True)
        return [
            [Extracted("turn", turn.content, asked and asked.content, "add", (0, 1), "test")]
            for turn, asked in pairs
        ]


AFTER = Extraction("patterns", "test", AnswersOf(), reads_previous=True)


def extracting(extraction: Extraction = SENTENCES, **overrides: Any) -> ConsolidationRule:
    return rule("all", extract=extraction, **overrides)


def turn(id: str, speaker: str, content: str, minute: int = 0, **overrides: Any) -> Episode:
    fields: dict[str, Any] = {"timestamp": at(minute)} | overrides
    return episode(id, source_node=speaker, content=content, **fields)


async def test_sentence_becomes_a_fact_and_a_greeting_does_not(
    provider: Provider, tmp_path: Path
) -> None:
    async with open_stores(provider) as home:
        await home.put(turn("e1", "chat", "Hi"), turn("e2", "chat", "Hi! My mother is a nurse."))

        report = await home.fire(extracting())

        [fact] = await home.facts.query(FactPattern())
        says = fact.payload["subject"], fact.payload["predicate"], fact.payload["object"]
        assert (fact.id, *says) == ("e2#1", "ada's mother", "job", "nurse")
        assert fact.payload["extracted"] == {"by": "conversation/job", "span": [4, 25]}
        assert fact.confidence == 0.9
        assert report.channels == {"facts": Counts(read=3, added=1, noop=2)}
        assert [(row.fact_id, row.reason) for row in home.log.lines if row.kind == "noop"] == [
            ("e1", "nothing_said"), ("e2", "in_triples"),
        ]  # fmt: skip
        assert (await home.facts.verify())[2] is None
        assert (await home.facts.replay(tmp_path / "again.db")).differing == 0


@pytest.mark.parametrize(
    "stated",
    [
        pytest.param(triple("e1", "bob", "likes", "tea").metadata, id="a triple"),
        pytest.param({"intent": "noop"}, id="an intent"),
        pytest.param({"triples": []}, id="an empty list of triples"),
    ],
)
async def test_episode_with_a_statement_of_its_host_is_not_extracted(
    provider: Provider, stated: dict[str, Any]
) -> None:
    async with open_stores(provider) as home:
        await home.put(turn("e1", "chat", "I live in Oslo.", metadata=stated))

        await home.fire(extracting())

        assert "e1#1" not in await home.objects()


async def test_edit_of_the_text_withdraws_what_it_said(provider: Provider) -> None:
    async with open_stores(provider) as home:
        await home.put(turn("e1", "chat", "I live in Oslo. I am a chef."))
        await home.fire(extracting())
        before = await home.objects()
        await home.put(turn("e1", "chat", "I am a nurse."))

        await home.fire(extracting())

        assert before == {"e1#1": "Oslo", "e1#2": "chef"}
        assert await home.objects() == {"e1#1": "nurse"}


async def test_rule_without_the_stage_still_promotes_the_text(provider: Provider) -> None:
    async with open_stores(provider) as home:
        await home.put(turn("e1", "chat", "Oslo is a city."))

        await home.fire(rule("all"))

        assert await home.objects() == {"e1": None}


CONVERSATION = [
    turn("e1", "desk", "Which area?", 0),
    turn("e2", "guest", "North", 1),
    turn("e3", "guest", "And cheap", 2),
    turn("e4", "desk", "Fine", 3),
    turn("e5", "desk", "Other session", 3, session="s2"),
    turn("e6", "guest", "Thanks", 4),
    turn("b1", "desk", "Other user", 4, user="bob"),
    turn("e7", "guest", "Bye", 4, timestamp=at(4).replace(microsecond=5)),
]
EXPECTED = {
    "e1#1": None, "e2#1": "Which area?", "e3#1": "Which area?", "e4#1": "And cheap", "e5#1": None,
    "e6#1": "Fine", "b1#1": None, "e7#1": "Fine",
}  # fmt: skip


@pytest.mark.parametrize("batch", [1, 3, 100])
async def test_turn_before_is_the_last_of_another_speaker_however_batches_are_cut(
    provider: Provider, batch: int
) -> None:
    async with open_stores(provider, batch=batch) as home:
        await home.put(*CONVERSATION)

        await home.fire(extracting(AFTER))

        assert await home.objects() == EXPECTED


async def test_turn_before_is_found_by_its_instant_whatever_its_offset(tmp_path: Path) -> None:
    asked = START.astimezone().isoformat()
    async with open_stores(tmp_path) as home:
        await home.put(turn("e1", "desk", "Which area?"), turn("e2", "guest", "North", 1))
        await _write_timestamp(tmp_path, "e1", asked.replace("+00:00", "Z"))

        await home.fire(extracting(AFTER))

        assert (await home.objects())["e2#1"] == "Which area?"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("own", "heard"), [(3, "Which area?"), (4, "Which area?"), (49, "Which area?"), (50, None)]
)
async def test_turn_before_is_searched_among_the_last_fifty(
    provider: Provider, own: int, heard: str | None
) -> None:
    async with open_stores(provider) as home:
        await home.put(turn("asked", "desk", "Which area?"))
        await home.put(*(turn(f"e{n:02}", "guest", "Hm", 1 + n) for n in range(own)))

        await home.fire(extracting(AFTER))

        assert (await home.objects())[f"e{own - 1:02}#1"] == heard


@pytest.mark.parametrize("batch", [1, 100])
async def test_turn_before_is_found_in_rows_whose_key_does_not_name_their_scope(
    tmp_path: Path, batch: int
) -> None:
    async with open_stores(tmp_path, batch=batch) as home:
        await home.memory.bootstrap()
        with closing(sqlite3.connect(tmp_path / "memory.db")) as connection, connection:
            rows = [row_of(one, PLACEHOLDER_KEY) for one in CONVERSATION]
            connection.executemany(INSERT, rows)

        await home.fire(extracting(AFTER))

        assert await home.objects() == EXPECTED


class Said(NamedTuple):
    """A turn of a random conversation.

    Attributes:
        session: The number of its session.
        speaker: The number of who says it.
        seconds: When it is said.
        style: How its timestamp is written: 0 as slumberd does, else as other programs do.
    """

    session: int
    speaker: int
    seconds: int
    style: int

    @property
    def at(self) -> datetime:
        return START + timedelta(seconds=self.seconds)

    @property
    def timestamp(self) -> str:
        zone = timezone(timedelta(hours=9)) if self.style == 1 else UTC
        written = self.at.astimezone(zone).isoformat()
        return written.replace("+00:00", "Z") if self.style else written

    @property
    def content(self) -> str:
        return f"After {self.seconds} s"


said = st.builds(
    Said,
    st.integers(0, 1),
    st.sampled_from([0, 0, 0, 0, 0, 1]),
    st.integers(0, 400_000),
    st.sampled_from([0, 0, 0, 0, 1, 2]),
)
conversations = st.lists(said, min_size=10, max_size=40, unique_by=lambda one: one.seconds)
MOST = 8


@pytest.mark.sampled
@settings(
    max_examples=amount(30, full=3_000),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(conversations, st.sampled_from([1, 4, 100]), st.randoms(use_true_random=False))
def test_turns_before_are_those_of_each_turn_alone(
    tmp_path_factory: pytest.TempPathFactory,
    conversation: list[Said],
    batch: int,
    chance: random.Random,
) -> None:
    folder = tmp_path_factory.mktemp("turns")
    ids = {one: f"e{number:02}" for number, one in enumerate(conversation)}

    async def fire() -> dict[str, object]:
        async with open_stores(folder, batch=batch) as home:
            for one in chance.sample(conversation, len(conversation)):
                fields: dict[str, Any] = {"session": f"s{one.session}", "timestamp": one.at}
                await home.put(turn(ids[one], f"p{one.speaker}", one.content, **fields))
                if one.style:
                    await _write_timestamp(folder, ids[one], one.timestamp)
            await home.fire(extracting(AFTER))
            return await home.objects()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("slumberd.storage.episodes.extracting.FEW_TURNS", 1)
        patch.setattr("slumberd.storage.episodes.extracting.MOST_TURNS", MOST)
        found = asyncio.run(fire())

    assert found == {f"{id}#1": _said_before(one, conversation) for one, id in ids.items()}


def _said_before(turn: Said, conversation: Sequence[Said]) -> str | None:
    """Return what another speaker said last before a turn, among the turns that are looked at."""
    of_session = [one for one in conversation if one.session == turn.session]
    upto = [one for one in of_session if one.seconds <= turn.seconds and not one.style]
    begin, end = [(turn.at + timedelta(days=days)).date().isoformat() for days in (-2, 2)]
    others = [one for one in of_session if one.style and begin <= one.timestamp < end]
    looked_at = sorted(upto, key=lambda one: one.seconds)[-MOST:] + others
    earlier = [
        one for one in looked_at if one.seconds < turn.seconds and one.speaker != turn.speaker
    ]
    last = max(earlier, key=lambda one: one.seconds, default=None)
    return None if last is None else last.content


async def _write_timestamp(folder: Path, id: str, text: str) -> None:
    with closing(sqlite3.connect(folder / "memory.db")) as connection, connection:
        connection.execute(
            "UPDATE episodes SET timestamp = ?, content = json_set(content, '$.timestamp', ?)"
            " WHERE id = ?",
            (text, text, id),
        )


async def test_consolidate_without_a_window_extracts_too(provider: Provider) -> None:
    async with open_stores(provider) as home:
        await home.put(*CONVERSATION[:2])

        deltas = await home.memory.consolidate(extracting(AFTER))

    found = [delta.fact_payload for delta in deltas if delta.kind == "add"]
    assert [(payload["id"], payload.get("object")) for payload in found] == [
        ("e1#1", None), ("e2#1", "Which area?"),
    ]  # fmt: skip


async def test_patterns_of_the_shipped_file_take_an_answer_from_its_question(
    provider: Provider,
) -> None:
    async with open_stores(provider) as home:
        await home.put(
            turn("e1", "guest", "I want a cheap Italian place in the north, please."),
            turn("e2", "desk", "Which area do you prefer?", 1),
            turn("e3", "guest", "I don't care.", 2),
        )

        await home.fire(extracting(extraction_of(read_document(BOOKING))))

        assert await home.objects() == {
            "e1#1": "cheap", "e1#2": "italian", "e3#1": "dontcare",
        }  # fmt: skip


def test_hash_of_a_rule_changes_with_its_extraction_only_when_it_has_one() -> None:
    plain, german = rule("all"), extracting(conversation_extraction({"chat": "eva"}))

    hashes = {each.content_hash for each in (plain, extracting(), german)}

    assert len(hashes) == 3
    assert (
        extracting().content_hash
        == extracting(conversation_extraction({"chat": "ada"})).content_hash
    )
    assert plain.content_hash == plain.model_copy(update={"extract": None}).content_hash
