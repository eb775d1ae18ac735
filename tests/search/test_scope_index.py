"""The index of one scope: what it finds, and against an oracle that scores every text."""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slumberd.model.errors import UsageError
from slumberd.model.texts import LANGUAGES
from slumberd.search import scope_index
from slumberd.search.priors import signs_of, sought_by, weight_of
from slumberd.search.scope_index import FoundText, IndexedTurn, ScopeIndex
from tests.support.lists import of_each
from tests.support.reachable_texts import reachable_texts

MINUTE = 60_000_000


def turn(id: str, text: str, session: str = "s", *, minute: int = 0, **more: str) -> IndexedTurn:
    return IndexedTurn(id, text, session, minute * MINUTE, **more)


def index_of(*turns: IndexedTurn, language: str | None = None) -> ScopeIndex:
    index = ScopeIndex(language=language)
    index.put(turns)
    return index


def ids(found: Sequence[FoundText]) -> list[str]:
    return [match.id for match in found]


def test_text_with_the_rarer_word_comes_first() -> None:
    index = index_of(
        turn("a", "tea in the garden", ""),
        turn("b", "tea with a zebra", ""),
        turn("c", "tea again", ""),
    )

    assert ids(index.search("tea zebra"))[0] == "b"


def test_text_without_a_word_of_the_question_is_not_found() -> None:
    index = index_of(turn("a", "tea", ""), turn("b", "coffee", ""))

    assert ids(index.search("tea")) == ["a"]
    assert index.search("milk") == []


def test_reply_without_a_word_of_the_question_is_found_by_the_turn_before_it() -> None:
    index = index_of(
        turn("question", "Where did you buy the bicycle?", minute=1),
        turn("reply", "At Miller's, near the station.", minute=2),
        turn("other", "It rains all day.", minute=9, session="t"),
    )

    assert ids(index.search("bicycle")) == ["question", "reply"]


def test_turn_of_another_session_is_no_neighbour() -> None:
    index = index_of(
        turn("question", "Where is the bicycle?", "one", minute=1),
        turn("reply", "At home.", "two", minute=2),
    )

    assert ids(index.search("bicycle")) == ["question"]


def test_long_reply_with_a_word_does_not_outrank_a_short_statement() -> None:
    words = " ".join(f"word{number}" for number in range(4_000))
    index = index_of(
        turn("long", f"{words} allergic peanuts", ""), turn("short", "I am allergic to peanuts", "")
    )

    assert ids(index.search("allergic peanuts")) == ["short", "long"]


def test_removed_turn_leaves_the_scores_of_its_neighbours_at_once() -> None:
    index = index_of(turn("a", "the bicycle", minute=1), turn("b", "yes", minute=2))
    assert ids(index.search("bicycle")) == ["a", "b"]

    index.drop(["a"])

    assert index.search("bicycle") == []


@pytest.mark.parametrize("vectors", [False, True])
@pytest.mark.parametrize("asked", [False, True])
def test_no_word_stays_that_only_a_removed_turn_had(*, vectors: bool, asked: bool) -> None:
    index = ScopeIndex(vectors=vectors)
    index.put([turn("a", "the zeppelin", speaker="Zeppelin"), turn("b", "the bicycle")])
    if asked:
        assert ids(index.search("zeppelin"))[0] == "a"

    index.drop(["a"])

    assert reachable_texts(index, holding="eppelin") == []
    assert ids(index.search("bicycle zeppelin the")) == ["b"]


def test_word_stays_while_a_turn_has_it() -> None:
    index = index_of(turn("a", "tea", ""), turn("b", "tea", ""), turn("c", "milk", speaker="Tea"))

    index.drop(["a"])
    assert sorted(ids(index.search("tea"))) == ["b", "c"]

    index.drop(["b", "c"])
    index.put([turn("a", "tea", "")])
    assert index.search("tea") == index_of(turn("a", "tea", "")).search("tea")


def test_changed_turn_is_found_by_its_new_words_only() -> None:
    index = index_of(turn("a", "coffee"))

    index.put([turn("a", "tea")])

    assert ids(index.search("tea")) == ["a"]
    assert index.search("coffee") == []
    assert len(index) == 1


def test_speaker_and_day_are_found() -> None:
    index = index_of(
        IndexedTurn("a", "I slept", "", 1_700_000_000_000_000, "Caroline"),
        IndexedTurn("b", "I slept", "", 1_600_000_000_000_000, "Melanie"),
        language="english",
    )

    assert ids(index.search("Caroline")) == ["a"]
    assert ids(index.search("November 2023")) == ["a"]


def test_caption_is_found() -> None:
    index = index_of(turn("a", "Look at this!", "", extra="a sunset over the lake"))

    assert ids(index.search("sunset")) == ["a"]


@pytest.mark.parametrize(
    ("text", "query"),
    [
        pytest.param("東京に住んでいます", "東京", id="Japanese"),
        pytest.param("我喜欢喝绿茶", "绿茶", id="Chinese"),
        pytest.param("ฉันชอบกินมะม่วง", "มะม่วง", id="Thai"),
        pytest.param("Ich wohne in der Königsstraße", "KÖNIGSSTRASSE", id="German"),
        pytest.param("Où est le café ?", "cafe", id="French without accents"),
        pytest.param("Она живёт в Москве", "москве", id="Russian"),
    ],
)
def test_word_of_any_script_is_found(text: str, query: str) -> None:
    index = index_of(turn("a", text, ""), turn("b", "something else", ""))

    assert ids(index.search(query)) == ["a"]


def test_part_of_a_word_is_not_the_word() -> None:
    assert index_of(turn("a", "a café", "")).search("caf") == []


def test_stem_counts_only_where_the_language_is_declared() -> None:
    running = turn("a", "she was running", "")

    assert ids(index_of(running, language="english").search("runs")) == ["a"]
    assert index_of(running).search("runs") == []


def test_unknown_language_is_refused() -> None:
    with pytest.raises(UsageError, match="language 'klingon' is unknown"):
        ScopeIndex(language="klingon")


@of_each(lambda: LANGUAGES)
def test_each_listed_language_can_be_stemmed(language: str) -> None:
    index = index_of(turn("a", "telephone", ""), language=language)

    assert ids(index.search("telephone")) == ["a"]


def test_score_says_how_much_of_the_question_is_answered() -> None:
    index = index_of(*(turn(str(number), f"word{number} here", "") for number in range(20)))

    exact = index.search("Word1, here!")[0].score
    whole = index.search("word1")[0].score
    half = index.search("word1 word2")[0].score
    little = index.search("word1 and five words of which nothing is known")[0].score

    assert exact == 1
    assert whole == 0.9
    assert half == pytest.approx(whole / 2)
    assert half > little > 0


EXACT = [
    pytest.param("I am allergic to peanuts.", id="English"),
    pytest.param("Am I?", id="stop words"),
    pytest.param("Ich wohne seit März in Krakau", id="German"),
    pytest.param("東京に住んでいます", id="Japanese"),
    pytest.param("\U0001f44d", id="a picture"),
    pytest.param(" ".join(f"word{number}" for number in range(300)), id="long"),
    pytest.param("tea tea tea", id="repeated"),
]


@pytest.mark.parametrize("language", [None, "auto", "english"])
@pytest.mark.parametrize("text", EXACT)
def test_exact_text_has_the_score_1_and_no_other_has(text: str, language: str | None) -> None:
    others = [turn(f"o{number}", f"{text} {number} more", "") for number in range(5)]
    index = index_of(turn("a", text, speaker="Ann"), *others, language=language)

    first, *rest = index.search(text)

    assert (first.id, first.score, first.lexical) == ("a", 1, 1)
    assert all(0 < match.score < 1 for match in rest)


def test_exact_text_beside_a_caption_has_the_score_1() -> None:
    index = index_of(turn("a", "Look at this!", "", extra="a sunset over the lake " * 20))

    assert index.search("look at this")[0].score == 1


@pytest.mark.slow
@pytest.mark.parametrize("vectors", [False, True])
def test_exact_text_has_the_score_1_with_vectors_too(*, vectors: bool) -> None:
    index = ScopeIndex(vectors=vectors)
    index.put([turn("a", "I like green tea"), turn("b", "I like green tea very much", minute=1)])

    first, second = index.search("I like green tea")

    assert (first.id, first.score) == ("a", 1)
    assert second.lexical <= second.score < 1


def test_least_score_is_inclusive() -> None:
    index = index_of(turn("a", "tea", ""), turn("b", "tea tea", ""))
    score = index.search("tea")[1].score

    assert len(index.search("tea", least=score)) == 2
    assert len(index.search("tea", least=math.nextafter(score, 1))) == 1


def test_accept_chooses_before_the_ranking() -> None:
    many = [turn(f"x{number}", "tea tea tea", "") for number in range(500)]
    index = index_of(*many, turn("wanted", "tea and a long way to go", ""))

    assert ids(index.search("tea", limit=1, accept=lambda id: id == "wanted")) == ["wanted"]


def test_alias_in_the_question_finds_the_name_and_back() -> None:
    index = index_of(
        turn("a", "we deploy on Kubernetes", ""), turn("b", "k8s it is", ""), turn("c", "tea", "")
    )
    aliases = [["Kubernetes", "k8s"]]

    assert set(ids(index.search("k8s", aliases=aliases))) == {"a", "b"}
    assert set(ids(index.search("kubernetes", aliases=aliases))) == {"a", "b"}
    assert ids(index.search("k8s")) == ["b"]


def test_empty_question_finds_nothing() -> None:
    index = index_of(turn("a", "tea", ""))

    assert index.search("") == index.search("  ?! ") == []
    assert index.search("tea", limit=0) == []


def test_question_of_stop_words_only_still_counts() -> None:
    index = index_of(turn("a", "The Who", ""), turn("b", "the tea", ""), language="english")

    assert ids(index.search("the who")) == ["a"]


def test_rebuilt_index_finds_what_a_new_one_finds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scope_index, "_MOST_REMOVED", 3)
    index = index_of(turn("a", "tea"))
    for number in range(50):
        index.put([turn("a", f"tea number{number}")])

    assert index.search("tea number49") == index_of(turn("a", "tea number49")).search(
        "tea number49"
    )


# An oracle: the formula over every text, without postings and candidates.

WORDS = ["tea", "milk", "zebra", "rain", "house", "go"]
TURNS = st.lists(
    st.builds(
        IndexedTurn,
        id=st.sampled_from([f"t{number}" for number in range(12)]),
        text=st.lists(st.sampled_from(WORDS), min_size=1, max_size=60).map(" ".join),
        session=st.sampled_from(["", "one", "two"]),
        at=st.integers(1, 5).map(lambda minute: minute * MINUTE),
        speaker=st.sampled_from(["", "zebra", "ann"]),
        extra=st.just(""),
    ),
    max_size=25,
)


def expected(turns: Sequence[IndexedTurn], question: Sequence[str]) -> dict[str, float]:
    """Return the score of each text that has one."""
    current = {one.id: one for one in turns}
    wanted = list(dict.fromkeys(question))
    found: dict[str, float] = {}
    most = 0.0
    for word in wanted:
        texts = sum(word in (*one.text.split(), one.speaker) for one in current.values())
        weight = math.log(1 + (max(len(current), 100) - texts + 0.5) / (texts + 0.5))
        most += 2.2 * weight
        for one in current.values():
            frequency = weighted(one, word, list(current.values()))
            if frequency:
                part = 2.2 * weight * frequency / (1.2 + frequency)
                found[one.id] = found.get(one.id, 0.0) + part
    parts = {id: score / most for id, score in found.items()}
    return {id: published(current[id], parts[id], question, parts, current) for id in parts}


def published(
    one: IndexedTurn,
    part: float,
    question: Sequence[str],
    parts: Mapping[str, float],
    turns: Mapping[str, IndexedTurn],
) -> float:
    """Return the score of a text by what it has of the question: raised, and on one scale."""
    if one.text.split() == [*question]:
        return 1.0
    weight = lost_by_the_session(one, parts, turns)
    named = {turn.speaker for turn in turns.values() if turn.speaker in question}
    if named == {one.speaker} and len(one.text.split()) <= 60:
        weight += 0.3
    raised: float = 1 - (1 - part) ** math.exp(weight)
    once = 1 / 2.2
    return float(0.9 * raised / once if raised < once else 0.9 + 0.1 * (raised - once) / (1 - once))


def lost_by_the_session(
    one: IndexedTurn, parts: Mapping[str, float], turns: Mapping[str, IndexedTurn]
) -> float:
    """Return by how much a text is lowered because another session answers more."""
    best: dict[str, float] = {}
    for name in {turn.session for turn in turns.values()} - {""}:
        own = [-math.log(1 - parts[id]) for id in parts if turns[id].session == name]
        best[name] = sum(sorted(own)[-3:])
    if not any(best.values()):
        return 0.0
    alone = -3 * math.log(1 - parts[one.id])
    share = best[one.session] if one.session else min(alone, max(best.values()))
    return 0.7 * (share / max(best.values()) - 1)


def weighted(one: IndexedTurn, word: str, turns: Sequence[IndexedTurn]) -> float:
    words = one.text.split()
    found = words.count(word) * 40 / max(40, len(words)) + 0.5 * (one.speaker == word)
    if not one.session or len(words) > 40:
        return found
    order = sorted((other.at, other.id, other) for other in turns if other.session == one.session)
    place = order.index((one.at, one.id, one))
    for step, weight in ((-1, 0.6), (-2, 0.3), (1, 0.2), (2, 0.1)):
        if 0 <= place + step < len(order):
            found += weight * order[place + step][2].text.split()[:40].count(word)
    return found


@pytest.mark.slow
@given(TURNS, st.lists(st.sampled_from(WORDS), min_size=1, max_size=4))
@settings(max_examples=200)
def test_scores_are_those_of_the_formula(turns: list[IndexedTurn], question: list[str]) -> None:
    index = index_of(*turns)

    found = index.search(" ".join(question), limit=100)

    scores = expected(turns, question)
    assert {match.id: match.score for match in found} == pytest.approx(scores, abs=1e-7)
    assert found == sorted(found, key=lambda match: (-match.score, match.id))


@pytest.mark.slow
@given(TURNS, st.randoms(use_true_random=False))
@settings(max_examples=100)
def test_order_of_arrival_changes_no_result(
    turns: list[IndexedTurn], shuffling: random.Random
) -> None:
    current = list({one.id: one for one in turns}.values())
    shuffled = shuffling.sample(current, len(current))
    other = ScopeIndex()
    for one in shuffled:
        other.put([one._replace(text="another text before")])
        other.put([one])

    assert index_of(*current).search("tea zebra rain") == other.search("tea zebra rain")


@pytest.fixture
def frequent_and_rare() -> ScopeIndex:
    """Return an index with a term so frequent that it may be left out, and a rare one."""
    frequent = [turn(f"t{number:05}", "tea", "") for number in range(12_000)]
    return index_of(*frequent, *(turn(f"z{number:03}", "zebra", "") for number in range(120)))


@pytest.mark.slow
def test_accepted_text_with_a_frequent_word_is_found(frequent_and_rare: ScopeIndex) -> None:
    found = frequent_and_rare.search("tea zebra", accept=lambda id: id == "t00007")

    assert ids(found) == ["t00007"]


@pytest.mark.slow
def test_as_many_texts_are_found_as_are_asked_for(frequent_and_rare: ScopeIndex) -> None:
    found = frequent_and_rare.search("tea zebra", limit=500)

    assert len(found) == 500
    assert {id[0] for id in ids(found[:120])} == {"z"}


LANGUAGES_OF_TEXTS = {
    "english": "We are going to the garden because the children have seen the birds",
    "german": "Wir gehen in den Garten, weil die Kinder dort die Vögel gesehen haben",
    "french": "Nous allons dans le jardin parce que les enfants y ont vu des oiseaux",
    "spanish": "Vamos al jardín porque los niños han visto allí los pájaros",
    "italian": "Andiamo nel giardino perché i bambini hanno visto gli uccelli",
    "portuguese": "Vamos para o jardim porque as crianças viram os pássaros no jardim",
    "dutch": "Wij gaan naar de tuin omdat de kinderen daar de vogels hebben gezien",
    "swedish": "Vi går till trädgården för att barnen har sett fåglarna där",
    "danish": "Vi går ud i haven, hvor børnene har set noget af det meste, og hvad gør du",
    "norwegian": "Vi går ut i hagen fordi barna har sett noe der, og hva gjør dere nå",
    "russian": "Мы идём в сад, потому что дети там увидели птиц, и это было так",
}


@pytest.mark.parametrize("language", list(LANGUAGES_OF_TEXTS))
def test_language_of_a_scope_is_recognised(language: str) -> None:
    assert index_of(turn("a", LANGUAGES_OF_TEXTS[language]), language="auto").languages == (
        language,
    )


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(
            "Wczoraj Maria kupiła nowy rower i pojechała na wycieczkę przez zielony las",
            id="Polish",
        ),
        pytest.param(
            "Maria osti eilen uuden polkupyörän ja lähti retkelle vihreän metsän läpi kotiin äidin",
            id="Finnish",
        ),
        pytest.param(
            "Včera si Maria koupila nové kolo, potom jela přes zelený les domů ke své matce",
            id="Czech",
        ),
    ],
)
def test_other_languages_are_unknown_and_similar_words_count_as_forms(text: str) -> None:
    index = index_of(turn("a", text), language="auto")

    assert index.languages == ("unknown",)


def test_forms_of_a_word_of_an_unknown_language_are_found() -> None:
    polish = "Wczoraj Maria kupiła zielony rower i pojechała rowerem przez duży las razem z siostrą"
    index = index_of(turn("a", polish, ""), turn("b", "Kupię jutro herbatę", ""), language="auto")

    assert ids(index.search("siostra")) == ["a"]
    assert ids(index.search("herbata"))[0] == "b"


def test_text_without_many_words_leaves_english() -> None:
    assert index_of(turn("a", "pizza"), language="auto").languages == ("english",)
    assert ids(index_of(turn("a", "running", ""), language="auto").search("runs")) == ["a"]


def test_scope_of_two_languages_has_the_forms_of_both() -> None:
    index = index_of(
        turn("e", "I am going to buy some trees for the garden", ""),
        turn("g", "Ich habe die Bäume in den Garten gesetzt", ""),
        turn("h", "Mein Bruder hat schon wieder Katzen", ""),
        turn("f", "My neighbour has three cats and I like them", ""),
        language="auto",
    )

    assert set(index.languages) == {"english", "german"}
    assert ids(index.search("a tree"))[0] == "e"
    assert ids(index.search("der Baum"))[0] == "g"
    assert ids(index.search("eine Katze"))[0] == "h"
    assert ids(index.search("the cat"))[0] == "f"


TEXTS_OF_LANGUAGES = st.lists(
    st.builds(
        IndexedTurn,
        id=st.sampled_from([f"t{number}" for number in range(12)]),
        text=st.sampled_from(
            [*LANGUAGES_OF_TEXTS.values(), "tea", "pizza garden", "Vogel", "birds Garten"]
        ),
        session=st.sampled_from(["", "one"]),
        at=st.integers(1, 5).map(lambda minute: minute * MINUTE),
    ),
    max_size=20,
)


@pytest.mark.slow
@given(TEXTS_OF_LANGUAGES, st.randoms(use_true_random=False), st.integers(1, 6))
@settings(max_examples=100)
def test_order_and_division_of_texts_change_neither_languages_nor_results(
    turns: list[IndexedTurn], shuffling: random.Random, size: int
) -> None:
    current = list({one.id: one for one in turns}.values())
    shuffled = shuffling.sample(current, len(current))
    other = ScopeIndex(language="auto")
    for start in range(0, len(shuffled), size):
        some = shuffled[start : start + size]
        other.put([one._replace(text=LANGUAGES_OF_TEXTS["german"]) for one in some])
        other.put([turn("x", LANGUAGES_OF_TEXTS["french"])])
        other.search("garden")
        other.put(some)
        other.drop(["x"])

    index = index_of(*current, language="auto")
    assert other.languages == index.languages
    for question in ("the birds in a garden", "Vögel im Garten", "tea", "les oiseaux"):
        assert other.search(question) == index.search(question)


@pytest.mark.parametrize(
    ("text", "question"),
    [
        pytest.param("She broke her arm", "broken", id="irregular verb"),
        pytest.param("The children sang", "a child sings", id="irregular noun"),
        pytest.param("My check-up is on Monday", "checkup", id="compound in the question"),
        pytest.param("My checkup is on Monday", "check-up", id="compound in the text"),
        pytest.param("We meet on December 8", "8th", id="ordinal in the question"),
        pytest.param("We meet on the 22nd", "22", id="ordinal in the text"),
    ],
)
def test_other_form_of_a_word_is_found(text: str, question: str) -> None:
    index = index_of(turn("a", text, ""), turn("b", "rain all day", ""), language="english")

    assert ids(index.search(question)) == ["a"]


def test_ordinal_names_the_day_of_a_text() -> None:
    index = index_of(
        IndexedTurn("a", "I slept", "", 1_702_000_000_000_000),
        IndexedTurn("b", "I slept", "", 1_702_100_000_000_000),
        language="english",
    )

    assert ids(index.search("8th December"))[0] == "a"
    assert ids(index.search("December 9th"))[0] == "b"


def test_elided_article_is_no_part_of_a_word() -> None:
    index = index_of(turn("a", "Il a vu l\u2019oiseau", ""), language="french")

    assert ids(index.search("des oiseaux")) == ["a"]


def test_text_by_the_one_person_in_the_question_comes_first() -> None:
    index = index_of(
        turn("a", "I adopted a puppy", "", speaker="Melanie"),
        turn("b", "I adopted a puppy", "", speaker="Caroline"),
    )

    assert ids(index.search("Which puppy did Caroline get?")) == ["b", "a"]


def test_long_text_gains_nothing_by_its_speaker() -> None:
    sought = sought_by("What did Ann say?", ["what", "did", "ann"], [("Ann", frozenset({"ann"}))])

    assert weight_of(signs_of("word " * 60), "Ann", None, sought) > 0
    assert weight_of(signs_of("word " * 61), "Ann", None, sought) == 0
    assert weight_of(signs_of("word"), "Ben", None, sought) == 0


def test_long_text_gains_less_by_its_session() -> None:
    sought = sought_by("What is it?", ["what", "is", "it"], [])

    assert weight_of(signs_of("word " * 60), "", 1.0, sought) == 0
    assert -0.7 < weight_of(signs_of("word " * 61), "", 1.0, sought) < 0


def test_two_persons_in_the_question_raise_no_text() -> None:
    names = [("Ann", frozenset({"ann"})), ("Ben", frozenset({"ben"}))]

    assert sought_by("Did Ann meet Ben?", ["did", "ann", "meet", "ben"], names).speaker is None
    assert sought_by("Where is Ann's cat?", ["where", "is", "ann's"], names).speaker == "Ann"


def test_question_for_a_time_raises_a_short_text_that_names_one() -> None:
    index = index_of(turn("a", "I ran a race", ""), turn("b", "I ran a race last week", ""))

    assert ids(index.search("When was the race?")) == ["b", "a"]
    assert ids(index.search("Where was the race?")) == ["a", "b"]


def test_text_of_the_session_that_answers_most_comes_first() -> None:
    index = index_of(
        turn("a", "the race", "one"),
        turn("b", "the race", "two"),
        *(turn(f"n{n}", "rain", "two", minute=n) for n in range(1, 4)),
        turn("c", "the medal of a race", "two", minute=9),
    )

    assert ids(index.search("race medal"))[:2] == ["c", "b"]


def test_larger_limit_changes_no_score() -> None:
    texts = [turn(f"t{n:03}", f"tea {'milk ' * (n % 7)}", f"s{n % 9}") for n in range(400)]
    index = index_of(*texts)

    assert index.search("tea milk", limit=400)[:20] == index.search("tea milk", limit=20)


def test_exact_text_is_found_where_each_word_is_frequent() -> None:
    words = ("tea", "milk", "cup", "green", "black")
    orders = list(product(words, repeat=5))
    index = index_of(*(turn(f"t{n}", " ".join(order)) for n, order in enumerate(orders * 2)))

    found = index.search("Black tea, green milk cup!", limit=3)

    exact = orders.index(("black", "tea", "green", "milk", "cup"))
    assert [(match.id, match.score) for match in found[:2]] == [
        (f"t{place}", 1.0) for place in sorted((exact, exact + len(orders)))
    ]
    assert found[2].score < 1
    index.drop([f"t{exact}"])
    assert [match.score == 1 for match in index.search("black tea green milk cup", limit=2)] == [
        True,
        False,
    ]


def test_question_without_words_finds_no_text_with_a_caption_only() -> None:
    index = index_of(IndexedTurn("a", "", extra="a red kite"))

    assert index.search("  ") == []
    assert ids(index.search("kite")) == ["a"]


def test_month_and_person_that_are_stop_words_count_in_a_question() -> None:
    index = ScopeIndex(language="auto")
    index.put(
        IndexedTurn(id, "ada went to the sea", session=id, at=at_day(month))
        for id, month in (("april", 4), ("may", 5), ("june", 6))
    )

    assert ids(index.search("Where did ada go in May?"))[0] == "may"
    [first, *_] = index.search("Where did Will go?")
    assert first.score < 0.5
    assert index.search("Will ada go?") == index.search("ada go")
    assert index.search("WHERE DID IT GO?") == index.search("go")


def at_day(month: int) -> int:
    return int(datetime(2026, month, 3, tzinfo=UTC).timestamp() * 1_000_000)
