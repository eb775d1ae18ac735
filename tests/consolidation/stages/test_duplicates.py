"""Duplicates: the join against a comparison of all pairs, what is never merged, hostile input."""

from __future__ import annotations

import math
import random
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from time import process_time
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slumberd.consolidation.stages.duplicates import (
    Pair,
    duplicates_of_pairs,
    find_duplicates,
    same_roles,
)
from slumberd.consolidation.stages.entries import Duplicate, Entry
from slumberd.consolidation.stages.similar_texts import wording_of
from slumberd.model.errors import ExtraMissingError
from tests.support.embedders import WordSums
from tests.support.late_imports import LateModule
from tests.support.sample_sizes import amount

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
else:
    np = LateModule("numpy")


pytestmark = pytest.mark.unit

WORDS = ["ann", "bob", "tea", "milk", "likes", "not", "never", "2", "3", "at", "home"]

few_words = st.lists(st.sampled_from(WORDS), max_size=9).map(" ".join)
many_words = st.lists(
    st.sampled_from(["x" + chr(97 + n) for n in range(26)]), min_size=12, max_size=24, unique=True
).map(" ".join)
texts = few_words | many_words | st.text(max_size=6)
some_entries = st.lists(
    st.builds(
        Entry,
        st.text("abc", max_size=4),
        st.just("s1"),
        texts,
        st.integers(0, 5),
        st.just(0.5),
        triple=st.sampled_from([None, None, None, "a b c"]),
    ),
    max_size=12,
    unique_by=lambda entry: entry.id,
)
similarities = st.sampled_from([0.3, 0.5, 0.85, 0.9, 1.0]) | st.floats(0.01, 1)


def entries_of(*contents: str, **fields: Any) -> list[Entry]:
    """Return entries e0, e1, …, each a microsecond later."""
    return [Entry(f"e{n}", "s1", content, n, **fields) for n, content in enumerate(contents)]


def letters(number: int) -> str:
    """Return a word of four letters for each number below 456,976."""
    return "".join(chr(97 + number // 26**place % 26) for place in range(4))


by_words = WordSums().rows


def same_for_all(texts: Sequence[str]) -> npt.NDArray[np.float32]:
    """Return one vector for all texts, so only what is never merged can keep them apart."""
    return np.ones((len(texts), 1), np.float32)


def are_merged(left: str, right: str, **options: Any) -> bool:
    found = find_duplicates(entries_of(left, right), embed=same_for_all, **options)
    assert all((duplicate.id, duplicate.of) == ("e0", "e1") for duplicate in found)
    return bool(found)


Similarity = Callable[[Entry, Entry, float], float | None]
"""Returns the similarity of two duplicates; None when they are not, by the least similarity."""


def by_jaccard(left: Entry, right: Entry, least: float) -> float | None:
    one, other = wording_of(left.content), wording_of(right.content)
    if (left.triple, one.numbers, one.negations) != (right.triple, other.numbers, other.negations):
        return None
    if one.text == other.text:
        return 1.0
    words, others = set(one.words), set(other.words)
    share = len(words & others) / len(words | others) if words | others else 0.0
    return share if share >= least and same_roles(one.words, other.words) else None


def of_all_pairs(
    entries: list[Entry], least: float, keep: str, similarity_of: Similarity = by_jaccard
) -> list[Duplicate]:
    """Compare each entry with each kept one: the definition, without an index."""
    ordered = sorted(entries, key=lambda entry: (entry.at, entry.id))
    kept: list[Entry] = []
    found: dict[str, Duplicate] = {}
    for entry in ordered[::-1] if keep == "newest" else ordered:
        for other in kept:
            similarity = similarity_of(entry, other, least)
            if similarity is not None:
                found[entry.id] = Duplicate(entry.id, other.id, similarity)
                break
        else:
            kept.append(entry)
    return [found[entry.id] for entry in ordered if entry.id in found]


@pytest.mark.slow
@settings(max_examples=amount(300, full=5_000))
@given(some_entries, similarities, st.sampled_from(["newest", "oldest"]))
def test_join_finds_what_a_comparison_of_all_pairs_finds(
    entries: list[Entry], similarity: float, keep: Any
) -> None:
    found = find_duplicates(entries, similarity=similarity, keep=keep)

    assert found == of_all_pairs(entries, similarity, keep)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(amount(3, full=30)))
@pytest.mark.parametrize("similarity", [0.6, 0.85])
def test_join_finds_all_planted_duplicates_that_all_pairs_have(
    seed: int, similarity: float
) -> None:
    chance = random.Random(seed)
    vocabulary = ["".join(chance.choices("bcdfghjk", k=5)) for _ in range(60)]
    contents = [" ".join(chance.choices(vocabulary, k=chance.randint(2, 25))) for _ in range(150)]
    contents += [with_one_change(chance.choice(contents), chance) for _ in range(100)]
    entries = entries_of(*contents)

    found = find_duplicates(entries, similarity=similarity)

    assert len(found) > 20
    assert found == of_all_pairs(entries, similarity, "newest")


def with_one_change(text: str, chance: random.Random) -> str:
    words = text.split()
    place = chance.randrange(len(words))
    words[place : place + chance.randint(0, 1)] = ["extra"] * chance.randint(0, 1)
    return " ".join(words)


needs_rapidfuzz = pytest.mark.skipif(
    find_spec("rapidfuzz") is None, reason="the extra `fuzzy` is not installed"
)
each_method = pytest.mark.parametrize(
    "method", ["exact", "jaccard", pytest.param("fuzzy", marks=needs_rapidfuzz), "vectors"]
)


@pytest.mark.cases(3)
@pytest.mark.slow
@each_method
@settings(max_examples=amount(60, full=1_000))
@given(entries=some_entries, chance=st.randoms(use_true_random=False))
def test_duplicates_do_not_depend_on_the_order_of_entries(
    method: Any, entries: list[Entry], chance: random.Random
) -> None:
    shuffled = chance.sample(entries, len(entries))

    found = find_duplicates(shuffled, method, embed=by_words)

    assert found == find_duplicates(entries, method, embed=by_words)


@pytest.mark.slow
@each_method
@settings(max_examples=amount(60, full=1_000))
@given(entries=some_entries, similarity=similarities)
def test_kept_entries_have_no_duplicates_and_duplicates_refer_to_kept_ones(
    method: Any, entries: list[Entry], similarity: float
) -> None:
    found = find_duplicates(entries, method, similarity=similarity, embed=by_words)

    gone = {duplicate.id for duplicate in found}
    kept = [entry for entry in entries if entry.id not in gone]
    assert {duplicate.of for duplicate in found} <= {entry.id for entry in kept}
    assert all(0 < duplicate.similarity <= 1 for duplicate in found)
    assert find_duplicates(kept, method, similarity=similarity, embed=by_words) == []


@each_method
@pytest.mark.parametrize(
    ("left", "right"),
    [
        ("I pay 10 EUR", "I pay  10 eur\n"),
        ("caf\u00e9", "cafe\u0301"),
        ("\uff21nna", "anna"),
        ("Stra\u00dfe", "STRASSE"),
        ("", ""),
        ("", " \t\n"),
        ("...", "..."),
    ],
)
def test_equal_texts_are_duplicates(method: Any, left: str, right: str) -> None:
    assert are_merged(left, right, method=method)


@pytest.mark.parametrize(
    ("left", "right"),
    [
        pytest.param("I pay 10 EUR", "I pay 10 EUR.", id="full stop"),
        pytest.param("I don't like tea", "i dont like tea", id="apostrophe"),
        pytest.param("I don\u2019t like tea", "I do not like tea", id="contraction"),
        pytest.param("the cat and dog", "the cat and the dog", id="repeated word"),
        pytest.param(
            "我喜欢在早上喝一杯热的绿茶和吃", "我喜欢在早上喝一杯热的绿茶和吃。", id="Chinese"
        ),
        pytest.param(
            "ฉันชอบดื่มชาเขียวร้อนในตอนเช้าทุกวันที่บ้าน",
            "ฉันชอบดื่มชาเขียวร้อนในตอนเช้าทุกวันที่บ้านค่ะ",
            id="Thai",
        ),
        pytest.param("मुझे हिन्दी पसंद है", "मुझे हिन्दी पसंद है।", id="Hindi"),
    ],
)  # fmt: skip
def test_texts_of_the_same_words_are_duplicates(left: str, right: str) -> None:
    assert are_merged(left, right)


LONG = "and so it was on a sunny day of that long and warm summer when all were together"


@each_method
@pytest.mark.parametrize(
    ("left", "right"),
    [
        ("likes dogs but not cats", "likes cats but not dogs"),
        ("Ann owes Bob", "Bob owes Ann"),
        ("likes tea but not milk", "likes tea but not wine"),
        ("Ann paid 10 EUR", "Ann paid 20 EUR"),
        ("Ann paid -5 EUR", "Ann paid 5 EUR"),
        ("it takes 3.5 hours", "it takes 3 5 hours"),
        ("it takes two hours", "it takes four hours"),
        ("Ann came at \u0663", "Ann came at \u0664"),
        ("Ann is here", "Ann is not here"),
        ("Ann can come", "Ann can't come"),
        ("Ann always comes", "Ann never comes"),
        ("Ann came with Bob", "Ann came without Bob"),
        ("Anna mag Bier", "Anna mag kein Bier"),
        ("Anna ist nicht da", "Anna ist da"),
        ("她喜欢狗不喜欢猫", "她喜欢猫不喜欢狗"),
        ("她明天来", "她明天不来"),
        ("她下午三点来", "她下午五点来"),
    ],
)
@pytest.mark.parametrize("end", ["", f" {LONG}"], ids=["short", "long"])
def test_texts_that_differ_in_what_they_say_are_kept(
    method: Any, left: str, right: str, end: str
) -> None:
    assert not are_merged(left + end, right + end, method=method, similarity=0.5)


@pytest.mark.parametrize(
    ("left", "right"),
    [("10 €", "10 $"), ("C", "C#"), ("10 %", "10"), ("...", "!"), ("", ".")],
)
def test_signs_count_and_texts_of_punctuation_alone_are_compared_as_they_are(
    left: str, right: str
) -> None:
    assert not are_merged(left, right)


@each_method
def test_entries_with_different_triples_are_kept(method: Any) -> None:
    entries = [
        Entry("e0", "s1", "same", 0, triple="a b c"),
        Entry("e1", "s1", "same", 1, triple="a b d"),
        Entry("e2", "s1", "same", 2),
        Entry("e3", "s1", "same", 3, triple="a b c"),
    ]

    assert find_duplicates(entries, method, embed=by_words) == [Duplicate("e0", "e3", 1.0)]


def test_similarity_of_exactly_the_threshold_makes_a_duplicate() -> None:
    common = " ".join(f"w{chr(97 + n)}" for n in range(17))
    entries = entries_of(f"{common} xa xb", f"{common} ya")

    assert find_duplicates(entries, similarity=0.85) == [Duplicate("e0", "e1", 17 / 20)]
    assert find_duplicates(entries, similarity=math.nextafter(0.85, 1)) == []


def test_chain_refers_to_the_kept_entry_or_is_kept() -> None:
    middle = "a b c d e f g h i j k l".split()  # noqa: SIM905 - as a text it is readable
    ends = " ".join(middle[:-2]), " ".join([*middle, "m", "n"])
    entries = entries_of(ends[0], " ".join(middle), ends[1])

    assert find_duplicates(entries, similarity=0.8) == [Duplicate("e1", "e2", 12 / 14)]


@pytest.mark.parametrize(
    ("keep", "expected"),
    [
        ("newest", [("a", "c"), ("b", "c")]),
        ("oldest", [("b", "a"), ("c", "a")]),
    ],
)
def test_newest_or_oldest_is_kept_and_of_one_instant_the_id_decides(
    keep: Any, expected: list[tuple[str, str]]
) -> None:
    entries = [Entry(id, "s1", "same", 7) for id in "bca"]

    found = find_duplicates(entries, keep=keep)

    assert [(duplicate.id, duplicate.of) for duplicate in found] == expected


def test_pairs_found_outside_pass_the_same_checks() -> None:
    entries = entries_of(
        "she moved to Lyon", "her home is Lyon now", "she owes 5 EUR", "she owes 6 EUR", "x", "X"
    )
    pairs = [
        Pair("e1", "e0", 0.9),
        Pair("e0", "e1", 0.95),
        Pair("e2", "e3", 0.99),
        Pair("e0", "e4", 0.84),
        Pair("e0", "e0", 1.0),
        Pair("e0", "unknown", 1.0),
    ]

    found = duplicates_of_pairs(entries, pairs)

    assert found == [Duplicate("e0", "e1", 0.95), Duplicate("e4", "e5", 1.0)]


@pytest.mark.nightly
@given(some_entries, st.data())
def test_pairs_in_any_order_and_direction_give_the_same_duplicates(
    entries: list[Entry], data: st.DataObject
) -> None:
    ids = st.sampled_from([entry.id for entry in entries] or [""])
    pairs = data.draw(st.lists(st.builds(Pair, ids, ids, st.floats(0, 1)), max_size=20))
    chance = data.draw(st.randoms(use_true_random=False))
    turned = [Pair(right, left, share) for left, right, share in chance.sample(pairs, len(pairs))]

    found = duplicates_of_pairs(entries, pairs, similarity=0.3)

    assert duplicates_of_pairs(entries[::-1], turned, similarity=0.3) == found
    gone = {duplicate.id for duplicate in found}
    kept = [entry for entry in entries if entry.id not in gone]
    assert duplicates_of_pairs(kept, pairs, similarity=0.3) == []


@needs_rapidfuzz
def test_fuzzy_forgives_spellings_that_jaccard_does_not() -> None:
    left, right = "I recieve dark roast cofee at work", "I receive dark roast coffee at work"

    assert are_merged(left, right, method="fuzzy")
    assert not are_merged(left, right, method="jaccard")


@needs_rapidfuzz
def test_fuzzy_compares_very_long_texts_exactly() -> None:
    long = "dark roast coffee " * 2_000

    assert are_merged(long, long.upper(), method="fuzzy")
    assert not are_merged(long, f"{long} x", method="fuzzy")


def test_fuzzy_without_its_extra_is_an_error_that_names_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "rapidfuzz", None)

    with pytest.raises(ExtraMissingError, match=r"slumberd\[fuzzy\]"):
        find_duplicates([], "fuzzy")


@pytest.mark.parametrize("similarity", [0.0, -1.0, 1.01, math.nan])
def test_similarity_out_of_bounds_is_an_error(similarity: float) -> None:
    with pytest.raises(ValueError, match="similarity is"):
        find_duplicates([], similarity=similarity)
    with pytest.raises(ValueError, match="similarity is"):
        duplicates_of_pairs([], [], similarity=similarity)


def test_unknown_choices_are_errors() -> None:
    unknown: Any = "best"
    with pytest.raises(ValueError, match="method is 'best'"):
        find_duplicates([], unknown)
    with pytest.raises(ValueError, match="keep is 'best'"):
        find_duplicates([], keep=unknown)


@pytest.mark.cases(3)
@pytest.mark.slow
@pytest.mark.parametrize(
    ("contents", "duplicates"),
    [
        pytest.param(lambda: ["the same words"] * 20_000, 19_999, id="equal texts"),
        pytest.param(lambda: [""] * 20_000, 19_999, id="empty texts"),
        pytest.param(
            lambda: [f"shared {letters(n)}" for n in range(20_000)], 0, id="one word in all texts"
        ),
        pytest.param(
            lambda: [f"step {n} is done" for n in range(20_000)], 0, id="one number in each text"
        ),
        pytest.param(
            lambda: [f"{LONG} {letters(n)} {letters(n)}x {letters(n)}y" for n in range(10_000)],
            0,
            id="a template",
        ),
        pytest.param(lambda: ["x" * 1_000_000 + end for end in "abc"], 0, id="one very long word"),
        pytest.param(
            lambda: ["word " * 200_000 + end for end in "abc"], 0, id="a million characters"
        ),
    ],
)
def test_hostile_texts_take_little_work(
    contents: Callable[[], list[str]], duplicates: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts, comparisons = contents(), Counter[str]()

    def counted(left: frozenset[str], right: frozenset[str]) -> float:
        comparisons["jaccard"] += 1
        return len(left & right) / len(left | right)

    monkeypatch.setattr("slumberd.consolidation.stages.similar_texts.jaccard", counted)

    assert len(find_duplicates(entries_of(*texts))) == duplicates
    assert comparisons["jaccard"] <= 10 * len(texts)


@pytest.mark.slow
def test_twenty_thousand_texts_take_five_seconds_and_all_planted_duplicates_are_found() -> None:
    chance = random.Random(1)
    vocabulary = ["".join(chance.choices("bcdfghjklmpqrstvwxz", k=6)) for _ in range(8_000)]
    by_rank = [1 / (rank + 1) for rank in range(len(vocabulary))]
    contents = [
        " ".join(chance.choices(vocabulary, by_rank, k=chance.randint(16, 24)))
        for _ in range(18_000)
    ]
    copied = chance.sample(range(len(contents)), 2_000)
    entries = entries_of(*contents, *(f"{contents[number]} extra" for number in copied))

    started = process_time()
    found = find_duplicates(entries)

    assert process_time() - started < 5
    assert {duplicate.id for duplicate in found} == {f"e{number}" for number in copied}
