"""LangGraph's store over facts behaves as LangGraph's own store in memory."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from slumberd import SyncMemory
from slumberd.model.errors import RecordRefusedError, UsageError
from tests.support.fakes import FakeClock
from tests.support.late_imports import LateModule
from tests.support.sample_sizes import amount

if TYPE_CHECKING:
    from langgraph.store import base
    from langgraph.store import memory as in_memory

    from slumberd.integrations import langgraph
else:
    base = LateModule("langgraph.store.base")
    in_memory = LateModule("langgraph.store.memory")
    langgraph = LateModule("slumberd.integrations.langgraph")


pytestmark = pytest.mark.integration

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
USERS = itertools.count()

LABELS = st.sampled_from(["a", "b", "a/b", "ä%2F", "*x"])
KEYS = st.sampled_from(["k", "l", "k/l", "%00", "\0", ""])
NAMESPACES = st.lists(LABELS, min_size=1, max_size=3).map(tuple)
NUMBERS = st.sampled_from([0, 1, 2, 2.5, -1])
VALUES = st.fixed_dictionaries(
    {"n": NUMBERS, "t": st.sampled_from(["x", "y", ""])},
    optional={
        "o": st.dictionaries(st.sampled_from(["p", "q"]), NUMBERS, max_size=2),
        "l": st.lists(NUMBERS, max_size=2),
        "z": st.none() | st.booleans(),
    },
)
COMPARISONS = st.dictionaries(
    st.sampled_from(["$eq", "$ne", "$gt", "$gte", "$lt", "$lte"]), NUMBERS, min_size=1, max_size=2
)
FILTERS = st.none() | st.dictionaries(st.just("n"), NUMBERS | COMPARISONS, max_size=1).flatmap(
    lambda chosen: VALUES.map(lambda value: {**chosen, **dict([*value.items()][2:3])})
)
PATHS = st.lists(LABELS | st.just("*"), min_size=1, max_size=2).map(tuple)
SIZES = {"limit": st.integers(0, 4), "offset": st.integers(0, 2)}


def operations() -> st.SearchStrategy[base.Op]:
    """Return the strategy of single calls."""
    puts = st.builds(
        base.PutOp, NAMESPACES, KEYS, VALUES | st.none(), index=st.none(), ttl=st.none()
    )
    kinds = st.sampled_from(["prefix", "suffix"])
    conditions = st.lists(st.builds(base.MatchCondition, kinds, PATHS), max_size=2).map(tuple)
    return st.one_of(
        puts,
        puts,
        st.builds(base.GetOp, NAMESPACES, KEYS),
        st.builds(
            base.SearchOp, st.just(()) | NAMESPACES, filter=FILTERS, query=st.none(), **SIZES
        ),
        st.builds(
            base.ListNamespacesOp,
            st.none() | conditions,
            st.none() | st.integers(1, 3),
            **SIZES,
        ),
    )


HISTORIES = st.lists(st.lists(st.deferred(operations), min_size=1, max_size=4), max_size=8)


@pytest.fixture(scope="module")
def opened(tmp_path_factory: pytest.TempPathFactory) -> Iterator[langgraph.SlumberdStore]:
    with langgraph.SlumberdStore.open(tmp_path_factory.mktemp("store") / "m", user="host") as store:
        yield store


def new_store(opened: langgraph.SlumberdStore, **options: Any) -> langgraph.SlumberdStore:
    """Return an empty store: that of another user."""
    return langgraph.SlumberdStore(
        opened._transport, opened._portal, user=f"u{next(USERS)}", **options
    )


@pytest.fixture
def store(opened: langgraph.SlumberdStore) -> langgraph.SlumberdStore:
    return new_store(opened)


def known_by(item: base.Item) -> tuple[Any, ...]:
    return item.namespace, item.key, item.value


class Reference:
    """LangGraph's store in memory, without its namespaces that hold nothing."""

    def __init__(self) -> None:
        self.store = in_memory.InMemoryStore()

    def answer(self, op: base.Op) -> Any:
        """Return the answer of one read, in a form that two stores can be compared by."""
        for namespace in [name for name, items in self.store._data.items() if not items]:
            del self.store._data[namespace]  # a read of a missing item makes one
        whole = op._replace(limit=10**6, offset=0) if isinstance(op, base.SearchOp) else op
        [found] = self.store.batch([whole])
        return found


def check_search(
    op: base.SearchOp, found: list[Any], whole: list[Any], expected: list[Any]
) -> None:
    """Check a page of a search: the reference orders by insertion, and slumberd by time."""
    assert sorted(map(repr, map(known_by, whole))) == sorted(map(repr, map(known_by, expected)))
    assert [*map(known_by, found)] == [*map(known_by, whole[op.offset : op.offset + op.limit])]


def check_batch(
    ops: list[base.Op], results: list[Any], wholes: list[Any], reference: Reference
) -> None:
    """Check the answers of one batch, and let the reference put what the batch puts."""
    expected: Any
    for op, result, whole in zip(ops, results, wholes, strict=True):
        expected = reference.answer(op) if not isinstance(op, base.PutOp) else None
        match op:
            case base.SearchOp():
                check_search(op, result, whole, expected)
            case base.GetOp():
                assert (result and known_by(result)) == (expected and known_by(expected))
            case _:
                assert result == expected
    reference.store.batch([op for op in ops if isinstance(op, base.PutOp)])


def without_bounds(ops: list[base.Op]) -> list[base.Op]:
    """Return reads with searches for all that they find; nothing is put."""
    return [
        op._replace(limit=1_000, offset=0)
        if isinstance(op, base.SearchOp)
        else base.GetOp(op.namespace, op.key)
        if isinstance(op, base.PutOp)
        else op
        for op in ops
    ]


@pytest.mark.slow
@pytest.mark.sampled
@pytest.mark.parametrize("way", ["synchronous", "asynchronous"])
@settings(max_examples=amount(12, full=500), phases=[Phase.explicit, Phase.generate])
@given(batches=HISTORIES)
def test_any_history_has_the_answers_of_the_store_in_memory(
    opened: langgraph.SlumberdStore, way: str, batches: list[list[base.Op]]
) -> None:
    store, reference = new_store(opened), Reference()

    def run(ops: list[base.Op]) -> list[Any]:
        return store.batch(ops) if way == "synchronous" else asyncio.run(store.abatch(ops))

    for ops in batches:
        wholes = run(without_bounds(ops))
        check_batch(ops, run(ops), wholes, reference)


@pytest.mark.slow
@given(value=st.dictionaries(st.text(), st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.text()
    | st.floats(allow_nan=False, allow_infinity=False),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=8,
)))  # fmt: skip
@settings(max_examples=amount(12, full=500), phases=[Phase.explicit, Phase.generate])
@pytest.mark.sampled
def test_value_comes_back_whole(opened: langgraph.SlumberdStore, value: dict[str, Any]) -> None:
    store = new_store(opened)

    store.put(("a",), "k", value)

    found = store.get(("a",), "k")
    assert found is not None
    assert repr(found.value) == repr(value)


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        pytest.param({"a": (1, 2)}, "value.a is no plain value", id="tuple"),
        pytest.param({"a": float("nan")}, "value.a is no plain value", id="no number"),
        pytest.param({"a": NOON}, "value.a is no plain value", id="instant"),
        pytest.param({"a": object()}, "value is not JSON", id="object"),
        pytest.param({"a": 2**64}, "value is not JSON", id="large number"),
        pytest.param({"a": {1: 2}}, "value is not JSON", id="key that is no text"),
        pytest.param({"a": "\ud800"}, "value is not JSON", id="half a character"),
    ],
)
def test_value_that_json_would_change_is_refused_and_nothing_is_put(
    store: langgraph.SlumberdStore, value: dict[str, Any], problem: str
) -> None:
    with pytest.raises(RecordRefusedError, match=f"record 1: {problem}"):
        store.batch([base.PutOp(("a",), "k", {"a": 1}), base.PutOp(("a",), "l", value)])

    assert store.search(()) == []


@pytest.mark.parametrize("ttl", [-1, float("nan"), float("inf"), 1e12])
def test_impossible_time_to_live_is_refused(store: langgraph.SlumberdStore, ttl: float) -> None:
    with pytest.raises(RecordRefusedError, match=f"ttl is {ttl}; it must be 0 to"):
        store.put(("a",), "k", {}, ttl=ttl)

    assert store.search(()) == []


def test_update_keeps_the_instant_of_creation(opened: langgraph.SlumberdStore) -> None:
    clock = FakeClock(NOON)
    store = new_store(opened, clock=clock)
    store.put(("a",), "k", {"n": 1})
    clock.advance(3_600)

    store.put(("a",), "k", {"n": 2})

    item = store.get(("a",), "k")
    assert item is not None
    assert (item.created_at, item.updated_at) == (NOON, NOON + timedelta(hours=1))


def test_search_by_a_query_returns_what_answers_it_best_first(
    store: langgraph.SlumberdStore,
) -> None:
    store.put(("u", "ada"), "1", {"text": "Ada plays the cello and the piano"})
    store.put(("u", "ada"), "2", {"text": "Ada sold her piano"})
    store.put(("u", "ada"), "3", {"text": "The weather is fine"})
    store.put(("u", "bob"), "4", {"text": "Bob plays the cello"})
    store.put(("u", "ada"), "5", {"text": "A hidden cello"}, index=False)

    found = store.search(("u", "ada"), query="Who plays the cello?")
    second = store.search(("u", "ada"), query="piano", limit=1, offset=1)

    assert found[0].key == "1"
    assert not {"4", "5"} & {item.key for item in found}
    assert found[0].score is not None and found[0].score > 0
    assert len(second) == 1
    assert store.search(("u",), query="cello", filter={"text": "Bob plays the cello"})[0].key == "4"


def test_item_ends_with_its_time_to_live(opened: langgraph.SlumberdStore) -> None:
    clock = FakeClock(NOON)
    store = new_store(opened, clock=clock)
    store.put(("a",), "k", {"n": 1}, ttl=10)
    store.put(("b",), "k", {"n": 1})

    clock.advance(600)

    assert store.get(("a",), "k") is None
    assert [item.namespace for item in store.search(())] == [("b",)]
    assert store.list_namespaces() == [("b",)]


@pytest.mark.parametrize("read", ["get", "search"])
@pytest.mark.parametrize("refresh", [True, False])
def test_read_extends_the_time_to_live_if_it_is_asked_to(
    opened: langgraph.SlumberdStore, read: str, *, refresh: bool
) -> None:
    clock = FakeClock(NOON)
    store = new_store(opened, clock=clock, ttl={"default_ttl": 10, "refresh_on_read": refresh})
    store.put(("a",), "k", {"n": 1})
    clock.advance(540)

    _ = store.get(("a",), "k") if read == "get" else store.search(("a",))
    clock.advance(540)

    item = store.get(("a",), "k")
    assert (item is not None) == refresh
    if item is not None:
        assert item.updated_at == NOON


def test_key_that_is_put_after_its_end_is_a_new_item(opened: langgraph.SlumberdStore) -> None:
    clock = FakeClock(NOON)
    store = new_store(opened, clock=clock)
    store.put(("a",), "k", {"n": 1}, ttl=1)
    clock.advance(60)

    store.put(("a",), "k", {"n": 2})

    item = store.get(("a",), "k")
    assert item is not None and item.created_at == clock.now()


async def test_sweep_retracts_what_has_ended(opened: langgraph.SlumberdStore) -> None:
    clock = FakeClock(NOON)
    store = new_store(opened, clock=clock)
    for namespace, ttl in (("a", 1.0), ("b", 1.0), ("c", 2.0), ("d", None)):
        await store.aput((namespace,), "k", {"n": 1}, ttl=ttl)
    clock.advance(60)

    first, others, none = store.sweep_ttl(("a",)), await store.asweep_ttl(), store.sweep_ttl()

    assert (first, others, none) == (1, 1, 0)
    assert store.list_namespaces() == [("c",), ("d",)]


def test_label_names_the_user_whose_memory_keeps_the_items(opened: langgraph.SlumberdStore) -> None:
    store = new_store(opened, user_at=2)
    ada, bob = f"ada{next(USERS)}", f"bob{next(USERS)}"
    store.put(("memories", ada), "k", {"n": 1})
    store.put(("memories", bob, "more"), "k", {"n": 2})

    of_ada = new_store(opened)
    of_ada._user = ada

    assert [item.value for item in of_ada.search(())] == [{"n": 1}]
    assert store.search(("memories", bob))[0].namespace == ("memories", bob, "more")
    assert store.list_namespaces(prefix=("memories", ada)) == [("memories", ada)]


@pytest.mark.parametrize(
    "op",
    [
        pytest.param(lambda: base.PutOp(("memories",), "k", {}), id="put"),
        pytest.param(lambda: base.GetOp(("memories",), "k"), id="get"),
        pytest.param(lambda: base.SearchOp(()), id="search"),
        pytest.param(lambda: base.ListNamespacesOp(), id="namespaces"),
        pytest.param(
            lambda: base.ListNamespacesOp((base.MatchCondition("prefix", ("memories", "*")),)),
            id="any namespace",
        ),
    ],
)
def test_call_that_names_no_user_is_refused_where_a_label_must(
    opened: langgraph.SlumberdStore, op: Callable[[], base.Op]
) -> None:
    store = new_store(opened, user_at=2)

    with pytest.raises(UsageError, match="names no user: its label 2 must"):
        store.batch([base.PutOp(("memories", "u"), "k", {}), op()])

    assert store.search(("memories", "u")) == []


@pytest.mark.parametrize("namespace", [("a.b",), ("",), ("a", "\0")])
def test_malformed_namespace_is_refused(
    store: langgraph.SlumberdStore, namespace: tuple[str, ...]
) -> None:
    with pytest.raises(base.InvalidNamespaceError):
        store.batch([base.PutOp(namespace, "k", {})])


@pytest.mark.parametrize("conditions", [{"n": {"$in": [1]}}, {"n": {"$gt": "x"}}])
def test_filter_that_cannot_be_evaluated_is_refused(
    store: langgraph.SlumberdStore, conditions: dict[str, Any]
) -> None:
    store.put(("a",), "k", {"n": 1})

    with pytest.raises(ValueError, match=r"Unsupported operator: \$in|convert string"):
        store.search((), filter=conditions)


@pytest.mark.parametrize(
    ("conditions", "found"),
    [
        pytest.param({"l": [1]}, False, id="shorter list"),
        pytest.param({"l": [1, 2]}, True, id="equal list"),
        pytest.param({"l": [1, {"$gt": 1}]}, True, id="operator in a list"),
        pytest.param({"o": {"p": 1}}, True, id="part of an object"),
        pytest.param({"o": {"p": {"$lt": 1}}}, False, id="operator in an object"),
        pytest.param({"n": {"p": 1}}, False, id="no object"),
        pytest.param({"missing": None}, True, id="missing key"),
    ],
)
def test_filter_selects_as_that_of_the_store_in_memory(
    store: langgraph.SlumberdStore, conditions: dict[str, Any], *, found: bool
) -> None:
    reference = in_memory.InMemoryStore()
    for one in (store, reference):
        one.put(("a",), "k", {"n": 1, "l": [1, 2], "o": {"p": 1, "q": 2}})

    answers = [len(one.search((), filter=conditions)) for one in (store, reference)]

    assert answers == [found, found]


@pytest.mark.parametrize(
    "bounds",
    [
        pytest.param({"suffix": ("v1",)}, id="suffix"),
        pytest.param({"suffix": ("*", "v1")}, id="any label in a suffix"),
        pytest.param({"prefix": ("a", "*", "v1")}, id="any label in a prefix"),
        pytest.param({"prefix": ("*", "y")}, id="any first label"),
        pytest.param({"prefix": ("a",), "suffix": ("v2",), "max_depth": 2}, id="both"),
        pytest.param({"max_depth": 1}, id="depth"),
        pytest.param({"limit": 2, "offset": 1}, id="page"),
    ],
)
def test_namespaces_are_listed_as_by_the_store_in_memory(
    store: langgraph.SlumberdStore, bounds: dict[str, Any]
) -> None:
    reference = in_memory.InMemoryStore()
    for one in (store, reference):
        for path in ("a/x/v1", "a/y/v1", "a/y/v2", "b/y", "v1", "b/y/v1/z"):
            one.put(tuple(path.split("/")), "k", {})

    found, expected = (one.list_namespaces(**bounds) for one in (store, reference))

    assert found == expected
    assert found


class EditingTransport:
    """Calls operations, and lets another program edit an item before the first retraction.

    Attributes:
        edit: What the other program does.
    """

    def __init__(self, store: langgraph.SlumberdStore) -> None:
        self._inner = store._transport
        self.edit: Any = None

    async def call(self, operation: str, request: dict[str, Any]) -> dict[str, Any]:
        if request.get("retract") and self.edit is not None:
            edit, self.edit = self.edit, None
            await edit
        return await self._inner.call(operation, request)


def test_item_that_is_put_again_during_a_sweep_stays(opened: langgraph.SlumberdStore) -> None:
    clock = FakeClock(NOON)
    theirs = new_store(opened, clock=clock)
    transport = EditingTransport(opened)
    ours = langgraph.SlumberdStore(transport, opened._portal, user=theirs._user, clock=clock)
    theirs.put(("a",), "k", {"n": 1}, ttl=1)
    clock.advance(60)
    transport.edit = theirs._run([base.PutOp(("a",), "k", {"n": 2})])

    swept = ours.sweep_ttl()

    item = theirs.get(("a",), "k")
    assert swept == 0
    assert item is not None and item.value == {"n": 2}


def test_last_put_of_a_key_in_a_batch_is_the_only_one(opened: langgraph.SlumberdStore) -> None:
    clock = FakeClock(NOON)
    store = new_store(opened, clock=clock)
    store.put(("a",), "k", {"n": 1})
    clock.advance(60)

    store.batch([base.PutOp(("a",), "k", None), base.PutOp(("a",), "k", {"n": 2})])

    item = store.get(("a",), "k")
    assert item is not None and item.created_at == NOON


def test_value_that_is_no_number_is_not_above_one(store: langgraph.SlumberdStore) -> None:
    store.put(("a",), "k", {"n": None})

    assert store.search((), filter={"n": {"$gt": 0}}) == []


def call(store: langgraph.SlumberdStore, operation: str, **request: Any) -> dict[str, Any]:
    """Call an operation of the daemon beneath a store."""
    return store._portal.call(lambda: store._transport.call(operation, request))


def last_firing(store: langgraph.SlumberdStore) -> str:
    """Return the last firing that changed a fact of a store's user."""
    page: dict[str, Any] = {"last": 0, "more": True}
    found: list[str] = []
    while page["more"]:
        page = call(store, "changes", user=store._user, after=page["last"], limit=1_000)
        found += [change["firing_id"] for change in page["changes"]]
    return found[-1]


@pytest.mark.slow
def test_items_are_facts_whose_changes_can_be_undone(store: langgraph.SlumberdStore) -> None:
    store.put(("u", "ada"), "tea", {"likes": "green"})
    store.put(("u", "ada"), "tea", {"likes": "black"})

    call(store, "undo", firing=last_firing(store))

    item = store.get(("u", "ada"), "tea")
    assert item is not None and item.value == {"likes": "green"}


def test_facts_that_a_rule_made_are_no_items(store: langgraph.SlumberdStore) -> None:
    memory = store._memory(())

    async def plant() -> None:
        for number, planted in enumerate([1, {"value": 1}, {"value": {}, "created_at": 1}]):
            await memory.remember(
                "x", triples=[("/a/k", langgraph.PREDICATE, planted)], id=f"{number}x"
            )
            await memory.wait_for(f"{number}x")

    store._portal.call(plant)

    assert store.search(()) == []
    assert store.get(("a",), "k") is None
    assert store.sweep_ttl() == 0


def test_store_outlives_its_program_and_works_through_a_daemon(tmp_path: Path) -> None:
    with langgraph.SlumberdStore.open(tmp_path / "m", user="ann") as store:
        store.put(("a",), "k", {"n": 1})
    with SyncMemory.open(tmp_path / "m", user="ann") as memory:
        [fact] = memory.facts().facts
        with langgraph.SlumberdStore.open(f"unix:{tmp_path / 'm'}", user="ann") as store:
            item = store.get(("a",), "k")
            store.delete(("a",), "k")
            left = memory.facts().facts

    assert (fact.payload["subject"], fact.payload["object"]["value"]) == ("/a/k", {"n": 1})
    assert item is not None and item.value == {"n": 1}
    assert left == []


def test_reads_of_a_batch_see_what_was_there_before_it(store: langgraph.SlumberdStore) -> None:
    store.put(("a",), "k", {"n": 1})

    _, found, _, whole = store.batch([
        base.PutOp(("a",), "k", {"n": 2}), base.GetOp(("a",), "k"),
        base.PutOp(("a",), "k", {"n": 3}), base.SearchOp(("a",)),
    ])  # fmt: skip

    assert isinstance(found, base.Item) and found.value == {"n": 1}
    assert isinstance(whole, list) and len(whole) == 1
    item = store.get(("a",), "k")
    assert item is not None and item.value == {"n": 3}


async def test_store_is_used_from_threads_and_from_an_event_loop(
    store: langgraph.SlumberdStore,
) -> None:
    def put(number: int) -> None:
        store.put(("a", str(number % 3)), str(number), {"n": number})

    async with asyncio.TaskGroup() as group:
        for number in range(12):
            group.create_task(asyncio.to_thread(put, number))
            group.create_task(store.aput(("b",), "same", {"n": number}))

    store.put(("c",), "k", {"n": 0})  # in the thread of the event loop
    assert {item.value["n"] for item in store.search(("a",), limit=20)} == {*range(12)}
    assert len(await store.asearch(("b",))) == 1
    assert len(store.search((), limit=20)) == 14


def test_store_is_a_base_store_that_supports_a_time_to_live(store: langgraph.SlumberdStore) -> None:
    assert isinstance(store, base.BaseStore)
    assert store.supports_ttl
