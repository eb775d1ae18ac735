"""Bench: the search among the facts of a PostgreSQL database, by three kinds of an index.

slumberd keeps the index of a user's facts in memory, and reads what has changed at each search. The
others choose candidates in the database: by its own text search, and by a table of postings. All of
them leave the score to the same code. The questions are asked in turns. In files, the bench also
measures one user's search beside searches of another.
"""

from __future__ import annotations

import asyncio
import gc
import sys
import tracemalloc
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from pathlib import Path
from random import Random
from statistics import mean, median
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import NamedTuple

import psycopg

from slumberd.daemon.composition import SWITCH_SECONDS
from slumberd.garbage_collection import collection_paused
from slumberd.model.episode import Episode
from slumberd.model.fact import Fact, FactPattern
from slumberd.model.feed import NumberedFact
from slumberd.model.scope import ScopeFilter
from slumberd.search.fact_index import FactIndex, words_of_fact
from slumberd.search.searcher import Searcher
from slumberd.search.term_index import _MOST_READ, CHOSEN, Concept, Neighbours, TermIndex
from slumberd.search.terms import Analyser
from slumberd.storage.ledger.fact_rows import readable_facts
from slumberd.storage.postgres.fact_store import PostgresFactStore
from slumberd.storage.postgres.memory_store import PostgresMemoryStore
from slumberd.storage.sqlite.fact_store import SQLiteFactStore
from slumberd.storage.sqlite.memory_store import SQLiteMemoryStore
from tests.bench.databases import Workshop
from tests.bench.measuring import Bound, Line, Table, at_most
from tests.bench.postgres import SETTINGS, TOGETHER, consolidate
from tests.bench.search_candidates import (
    Candidates,
    Connection,
    FactTerms,
    Postings,
    TextSearch,
    count_facts,
    create_users,
    facts_of_user,
)
from tests.bench.server_costs import Meter, SharedCost
from tests.recall.generated import Generator
from tests.support.builders import triple
from tests.support.postgres_server import MISSING, OwnServer, programs, running_server_on_disk
from tests.support.providers import AnyFactStore, AnyMemoryStore

SECTION = "search"
LIMIT = 10

AT_ONCE = 4
"""The searches of another user that run all the time beside one user's."""

QUESTIONS_BESIDE = 100
"""Questions of that one user, for each time that everything is measured."""

FACTS_OF_MANY = 100
"""The facts of each of the many users."""

MOST_BESIDE = 2.0
"""How many times as long one user's search may take beside those of another."""

MOST_MILLISECONDS = 20.0
"""How long a search among the most facts may take."""

QUESTIONS_EACH = 6
"""Questions to each size of a user, for each time that everything is measured."""

_FACTS_OF_SUBJECT = 8
_PREDICATES = (
    "lives in", "works at", "likes", "dislikes", "owns", "speaks", "studies", "plays", "visited",
    "is allergic to", "is married to", "is a friend of", "wants to visit", "prefers", "drinks",
    "eats", "reads", "watches", "was born in", "has a meeting about", "manages", "reports to",
    "is responsible for", "uses", "pays for", "is afraid of",
)  # fmt: skip
_FIRST_NAMES = (
    "Ann", "Ben", "Carla", "David", "Emma", "Frank", "Greta", "Hans", "Ida", "Jonas", "Karin",
    "Lukas", "Maria", "Nils", "Olga", "Peter", "Rosa", "Simon", "Tina", "Ulrich", "Vera", "Walter",
    "Xenia", "Yusuf", "Zoe",
)  # fmt: skip
_FACTS_BY_ID = """
SELECT fact_id, "user", agent, payload, lineage, confidence, pinned_at, metadata
FROM slumberd_0.facts WHERE fact_id = ANY (%s)
"""
_MILLI, _MICRO = 1e3, 1e6
_ANALYSER = Analyser()

Found = list[str]
"""The ids of the facts that a search found, best first."""


class Asked(NamedTuple):
    """A question to the facts of a user."""

    user: str
    text: str


@dataclass
class Way:
    """A way to search, and what it took.

    Attributes:
        name: Its name in the table.
        ask: Searches.
        seconds: How long each search took.
        recalls: The share of the full score's first ten that each search found.
        shared: The share of slumberd's first ten that each search found.
    """

    name: str
    ask: Callable[[Asked], Awaitable[Found]]
    seconds: list[float] = field(default_factory=list)
    recalls: list[float] = field(default_factory=list)
    shared: list[float] = field(default_factory=list)


def measure(table: Table, shop: Workshop) -> None:
    """Index the facts of users of four sizes, then ask."""
    asyncio.run(_measure_beside(table, shop))
    if programs() is None:
        print(f"{SECTION}: {MISSING}", file=sys.stderr)
        return
    with running_server_on_disk(**SETTINGS) as server, server.database() as name:
        asyncio.run(_measure(table, shop, server, name))


async def _measure_beside(table: Table, shop: Workshop) -> None:
    """Measure one user's search alone, and beside searches of a user with many facts."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(SWITCH_SECONDS)  # as a daemon does
    try:
        with TemporaryDirectory(dir=shop.folder) as folder:
            async with (
                SQLiteMemoryStore(Path(folder, "memory.db")) as memory,
                SQLiteFactStore(Path(folder, "facts.db")) as facts,
            ):
                await memory.bootstrap()
                await facts.bootstrap()
                await put_facts(memory, facts, {"other": shop.small, "one": FACTS_OF_MANY})
                await _ask_beside(table, shop, Searcher(memory, facts), facts)
    finally:
        sys.setswitchinterval(before)


async def _ask_beside(
    table: Table, shop: Workshop, searcher: Searcher, facts: SQLiteFactStore
) -> None:
    texts = {
        user: [*_questions(await facts.query(FactPattern(user=user)), QUESTIONS_BESIDE)]
        for user in ("one", "other")
    }

    async def ask(user: str) -> list[float]:
        """Return how many milliseconds each question of a user takes."""
        seconds = []
        for text in texts[user]:
            began = perf_counter()
            await searcher.search(text, user=user, limit=LIMIT)
            seconds.append(perf_counter() - began)
        return _in_ms(seconds)

    async def ask_again() -> None:
        while True:
            await ask("other")

    await ask("one")
    await ask("other")
    alone, beside = [], []
    for _ in shop.turns():
        alone.append(median(await ask("one")))
        others = [asyncio.ensure_future(ask_again()) for _ in range(AT_ONCE)]
        beside.append(median(await ask("one")))
        for other in others:
            other.cancel()
        await asyncio.gather(*others, return_exceptions=True)
    name = f"{FACTS_OF_MANY} facts, beside {AT_ONCE} searches of a user with {shop.small:,}"
    _line(table, f"{FACTS_OF_MANY} facts, alone", "ms", alone)
    _line(table, name, "ms", beside)
    table.ratio(SECTION, f"{name}, to alone", (beside, alone), at_most(MOST_BESIDE))


async def _measure(table: Table, shop: Workshop, server: OwnServer, name: str) -> None:
    address = server.address_of(name)
    sizes = [shop.small // 10, shop.small, shop.middle]
    many = [f"many-{number}" for number in range(max(2, shop.middle // 200))]
    users = {f"one-{size}": size for size in sizes} | dict.fromkeys(many, FACTS_OF_MANY)
    async with PostgresMemoryStore(address) as memory, PostgresFactStore(address) as facts:
        await memory.bootstrap()
        await facts.bootstrap()
        await put_facts(memory, facts, users)
        kinds: list[Candidates] = [TextSearch(), Postings()]
        with (
            psycopg.connect(address, autocommit=True) as connection,
            closing(Meter(server, name)) as meter,
        ):
            await _index(table, connection, meter, facts, kinds, users, portion=shop.small)
            asker = _Asker(memory, facts, connection, kinds)
            count = QUESTIONS_EACH * shop.times
            for size in sizes:
                name, users_of = f"a user with {size:,}", [f"one-{size}"]
                await asker.measure(table, name, users_of, count, is_largest=size == sizes[-1])
            await asker.measure(table, f"{len(many)} users with {FACTS_OF_MANY}", many, count)


async def put_facts(memory: AnyMemoryStore, facts: AnyFactStore, users: dict[str, int]) -> None:
    """Put episodes of users, and consolidate them into as many facts."""
    episodes = (one for user, count in users.items() for one in _episodes(user, count))
    while some := [*islice(episodes, TOGETHER)]:
        await memory.put_many(some)
    await consolidate(memory, facts)


def _episodes(user: str, count: int) -> Iterator[Episode]:
    """Yield episodes with triples, no two of which have the same subject and predicate."""
    chance, names = Random(user), {}
    for number, turn in enumerate(Generator(count).episodes(user, count)):
        words = turn.content.split()
        subject = number // _FACTS_OF_SUBJECT
        if subject not in names:
            names[subject] = f"{chance.choice(_FIRST_NAMES)} {words[-1].title()}{subject}"
        at = (subject + number % _FACTS_OF_SUBJECT * 3) % len(_PREDICATES)
        said = " ".join(words[: chance.randint(1, 5)])
        id = f"{user}-{number:08}"  # ids that grow
        yield triple(id, names[subject], _PREDICATES[at], said, user=user, content=said)


async def _index(
    table: Table,
    connection: Connection,
    meter: Meter,
    facts: PostgresFactStore,
    kinds: Sequence[Candidates],
    users: Iterable[str],
    *,
    portion: int,
) -> None:
    """Add all facts to each index in turns, and say what that took."""
    create_users(connection)
    for kind in kinds:
        kind.create(connection)
    costs: dict[str, list[SharedCost]] = {kind.name: [] for kind in kinds}
    added = 0
    for user in users:
        known = await facts.query(FactPattern(user=user))
        terms = [FactTerms(fact.id, _ANALYSER.terms(words_of_fact(fact))) for fact in known]
        count_facts(connection, user, len(terms))
        added += len(terms)
        for start in range(0, len(terms), portion):
            some = terms[start : start + portion]
            for kind in kinds:
                cost = await meter.measure(partial(_add, connection, kind, user, some))
                if len(some) == portion:  # ticks of the clock are too long for fewer
                    costs[kind.name].append(SharedCost(*(part / portion for part in cost)))
    connection.execute(b"VACUUM ANALYZE")
    for kind in kinds:
        _add_costs(table, kind.name, costs[kind.name])
        _line(table, f"{kind.name}: disk of a fact", "bytes", [kind.size(connection) / added])


def _add_costs(table: Table, name: str, costs: Sequence[SharedCost]) -> None:
    _line(table, f"{name}: to write a fact", "us", [_MICRO * cost.wall for cost in costs])
    _line(table, f"{name}: of that, the client", "us", [_MICRO * cost.client for cost in costs])
    _line(table, f"{name}: of that, the server", "us", [_MICRO * cost.server for cost in costs])
    _line(table, f"{name}: log of a fact", "bytes", [cost.log_bytes for cost in costs])


async def _add(
    connection: Connection, kind: Candidates, user: str, facts: Sequence[FactTerms]
) -> None:
    """Add facts in batches, each in a transaction."""
    for start in range(0, len(facts), TOGETHER):
        with connection.transaction():
            kind.add(connection, user, facts[start : start + TOGETHER])


def _index_of(user: str, facts: Sequence[Fact]) -> FactIndex:
    index = FactIndex(ScopeFilter(user, None, None), language=None, vectors=False)
    index.replace((), [NumberedFact(fact.id, fact) for fact in facts])
    return index


class _Asker:
    """Asks questions in each way.

    Args:
        memory: The episodes.
        facts: The facts.
        connection: To the database.
        kinds: The indexes in the database.
    """

    def __init__(
        self,
        memory: PostgresMemoryStore,
        facts: PostgresFactStore,
        connection: Connection,
        kinds: Sequence[Candidates],
    ) -> None:
        self._memory = memory
        self._facts = facts
        self._connection = connection
        self._kinds = kinds

    async def measure(
        self,
        table: Table,
        name: str,
        users: Sequence[str],
        count: int,
        *,
        is_largest: bool = False,
    ) -> None:
        """Ask users in turn, each question in each way."""
        chosen = users[:: max(1, len(users) // count)]
        searcher = Searcher(self._memory, self._facts, language=None)  # as the others score
        kept: dict[str, FactIndex] = {}
        ways = [
            Way("slumberd", partial(self._search, searcher)),
            *(Way(kind.name, partial(self._find, kind)) for kind in self._kinds),
            Way("slumberd's index alone", partial(self._search_index, kept)),
            Way("its scorer alone", partial(self._score_kept, kept)),
        ]
        firsts, reading = [], []
        questions: dict[str, list[Asked]] = {}
        for user in chosen:
            began = perf_counter()
            found = await self._facts.query(FactPattern(user=user))
            reading.append(perf_counter() - began)
            with collection_paused():
                kept[user] = _index_of(user, found)
            gc.freeze()  # a daemon has no second index, which would make each collection longer
            each = -(-count // len(chosen))
            questions[user] = [Asked(user, text) for text in _questions(found, each)]
            began = perf_counter()
            await ways[0].ask(questions[user][0])
            firsts.append(perf_counter() - began)
        for asked in (one for some in zip(*questions.values(), strict=True) for one in some):
            await self._ask(asked, ways, kept[asked.user])
        gc.unfreeze()
        _add_ways(table, name, ways, at_most(MOST_MILLISECONDS) if is_largest else None)
        _line(table, f"{name}: slumberd, reading the facts", "ms", _in_ms(reading))
        _line(table, f"{name}: slumberd, the first search", "ms", _in_ms(firsts))
        if len(users) == 1:
            memory = await self._memory_of_a_fact(users[0])
            _line(table, f"{name}: slumberd, memory of a fact", "bytes", [memory])

    async def _memory_of_a_fact(self, user: str) -> float:
        """Return the bytes that a fact and its part of the index take."""
        gc.collect()
        tracemalloc.start()
        try:
            found = await self._facts.query(FactPattern(user=user))
            index = _index_of(user, found)
            found.clear()
            return tracemalloc.get_traced_memory()[0] / len(index.kept)
        finally:
            tracemalloc.stop()

    async def _ask(self, asked: Asked, ways: Sequence[Way], index: FactIndex) -> None:
        """Ask a question in each way, and compare what each finds with the full score."""
        everything = index.search(asked.text, limit=len(index.kept))
        best = [match.id for match in everything[:LIMIT]]
        answers: list[Found] = []
        for way in ways:
            began = perf_counter()
            answers.append(await way.ask(asked))
            way.seconds.append(perf_counter() - began)
            way.recalls.append(_share(answers[-1], best))
            way.shared.append(_share(answers[-1], answers[0]))

    async def _search(self, searcher: Searcher, asked: Asked) -> Found:
        hits = await searcher.search(asked.text, user=asked.user, kinds=["fact"], limit=LIMIT)
        return [hit.id for hit in hits]

    async def _search_index(self, kept: dict[str, FactIndex], asked: Asked) -> Found:
        """Search without reading the facts, as if the index followed their changes."""
        return [match.id for match in kept[asked.user].search(asked.text, limit=LIMIT)]

    async def _score_kept(self, kept: dict[str, FactIndex], asked: Asked) -> Found:
        """Search also without spelling and aliases, which the indexes of the database lack."""
        return [match.id for match in kept[asked.user].index.search(asked.text, limit=LIMIT)]

    async def _find(self, kind: Candidates, asked: Asked) -> Found:
        """Choose candidates in the database, and score them."""
        terms = [*dict.fromkeys(_ANALYSER.terms(asked.text))]
        total = facts_of_user(self._connection, asked.user)
        counts = kind.count(self._connection, asked.user, terms)
        neighbours = Neighbours()
        found: list[Fact] = []
        index = _CandidateIndex(neighbours, lambda number: (0, found[number].id), counts, total)
        concepts = [index.concept([term]) for term in terms]
        concepts.sort(key=lambda one: (-one.weight, one.terms))
        weights = {one.terms[0]: one.weight for one in _enough(concepts, counts)}
        if not weights:
            return []
        ids = kind.choose(self._connection, asked.user, weights)
        found += readable_facts(self._connection.execute(_FACTS_BY_ID, (ids,)))
        return _score(index, neighbours, found, concepts)


class _CandidateIndex(TermIndex):
    """Candidates, whose terms are as rare as among all facts of a user.

    Args:
        neighbours: The order of the candidates.
        ages: The instant and the id of a candidate.
        counts: How many facts have each term.
        total: How many facts there are.
    """

    def __init__(
        self,
        neighbours: Neighbours,
        ages: Callable[[int], tuple[int, str]],
        counts: Mapping[str, int],
        total: int,
    ) -> None:
        super().__init__(neighbours, ages)
        self._counts = counts
        self._count = total

    def texts_with(self, term: str) -> int:
        return self._counts.get(term, 0)


def _enough(concepts: Iterable[Concept], counts: Mapping[str, int]) -> Iterator[Concept]:
    """Yield the rarest concepts, as `TermIndex` chooses them, until they have facts enough."""
    read = 0
    for concept in concepts:
        found = counts.get(concept.terms[0], 0)
        if read + found > _MOST_READ and read >= CHOSEN:
            return
        read += found
        if found:
            yield concept


def _score(
    index: TermIndex, neighbours: Neighbours, facts: Sequence[Fact], concepts: Sequence[Concept]
) -> Found:
    """Return the ids of the facts with the best scores, as slumberd's index does."""
    for number, fact in enumerate(facts):
        neighbours.append(number, "", 0, fact.id)
        index.append(_ANALYSER.terms(words_of_fact(fact)), frozenset(), frozenset())
    most = sum(concept.most for concept in concepts) or 1.0
    scores = index.score(concepts)
    best = sorted((-round(score / most, 8), facts[n].id) for n, score in scores.items() if score)
    return [id for _, id in best[:LIMIT]]


def _share(found: Found, wanted: Found) -> float:
    return len({*found} & {*wanted}) / max(len(wanted), 1)


def _questions(facts: Sequence[Fact], count: int) -> Iterator[str]:
    """Yield questions about facts at random, of three forms in turn."""
    chance = Random(len(facts))
    for number in range(count):
        payload = chance.choice(facts).payload
        subject, predicate, said = (payload[part] for part in ("subject", "predicate", "object"))
        yield (
            f"What does {subject} say, who {predicate}?",
            f"Who {predicate} {said}?",
            f"{subject.split()[0]} and the {chance.choice(said.split())} of {said}",
        )[number % 3]


def _add_ways(table: Table, name: str, ways: Sequence[Way], bound: Bound | None) -> None:
    for way in ways:
        own = bound if way is ways[0] else None
        line = Line(SECTION, f"{name}: {way.name}", "ms", _in_ms(way.seconds), bound=own)
        table.add(line)
    for way in ways[1:]:
        ratio = f"{name}: {way.name}, to slumberd"
        table.ratio(SECTION, ratio, (way.seconds, ways[0].seconds))
    for way in ways:
        _line(table, f"{name}: {way.name}, recall@{LIMIT}", "", [mean(way.recalls)])
    for way in ways[1:]:
        _line(table, f"{name}: {way.name}, share of slumberd's {LIMIT}", "", [mean(way.shared)])


def _line(table: Table, name: str, unit: str, values: Sequence[float]) -> None:
    table.add(Line(SECTION, name, unit, values))


def _in_ms(seconds: Iterable[float]) -> list[float]:
    return [_MILLI * one for one in seconds]
