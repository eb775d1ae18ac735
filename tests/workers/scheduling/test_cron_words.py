"""The words for a cadence describe its instants, not its notation.

The library cron-descriptor 2.2.1 describes each field by itself. For these expressions its words
differ from what the daemon does:

=====================  ===========================================================================
``*/21 * * * *``       "Every 21 minutes"; it fires at minutes 0, 21 and 42 of each hour
``0 */5 * * *``        "Every 5 hours"; 00:00 comes four hours after 20:00
``0 0 */10 * 5``       "every 10 days, or on Friday"; both must hold (a field begins with ``*``)
``0 0 13 * */7``       "on day 13 of the month, every 7 days of the week"; both must hold
``0 0 13 * 0-6``       "on day 13 of the month, Sunday through Saturday"; it fires every day
``0 0 1-31 * 5``       "between day 1 and 31 of the month, or on Friday"; it fires every day
``0 0 * * */2``        "every 2 days of the week"; Sunday follows Saturday
``0 0 1 1-12/5 *``     "every 5 months, January through December"; January follows November
``0 0 1,L * *``        "on day 1 and L of the month"; so does ``15,LW``
``0 0 * * 1#1,3#3``    "on the  Monday and Wednesday of the month"; the numbers are missing
``@hourly``, ...       refused: an expression needs five fields
=====================  ===========================================================================
"""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slumberd.model.rule import Cadence, Cron, Every
from slumberd.workers.scheduling import cron
from slumberd.workers.scheduling.cron_text import cron_in_words, in_words

pytestmark = pytest.mark.unit


@pytest.mark.parametrize(
    ("expression", "words"),
    [
        ("* * * * *", "every minute"),
        ("*/15 * * * *", "every 15 minutes"),
        ("0,15,30,45 * * * *", "every 15 minutes"),
        ("0-59/30 * * * *", "every 30 minutes"),
        ("*/21 * * * *", "at minutes 0, 21 and 42 of every hour"),
        ("5/20 * * * *", "at minutes 5, 25 and 45 of every hour"),
        ("10-20/5 * * * *", "at minutes 10, 15 and 20 of every hour"),
        ("0-4,30 * * * *", "at minutes 0 to 4 and 30 of every hour"),
        ("0,1 * * * *", "at minutes 0 and 1 of every hour"),
        ("*/15 9-17 * * 1-5", "every 15 minutes of hours 9 to 17, on Monday to Friday"),
        ("* 3 * 1 *", "every minute of hour 3, every day, in January"),
        ("0 3 * * *", "at 03:00, every day"),
        ("30 3,15 * * *", "at 03:30 and 15:30, every day"),
        ("0 */5 * * *", "at 00:00, 05:00, 10:00, 15:00 and 20:00, every day"),
        ("0 */3 * * *", "at minute 0 of hours 0, 3, 6, 9, 12, 15, 18 and 21, every day"),
        ("0 0 1,15 * *", "at 00:00, on days 1 and 15 of the month"),
        ("0 0 1-7 * *", "at 00:00, on days 1 to 7 of the month"),
        ("0 0 31 * *", "at 00:00, on day 31 of the month if there is one"),
        ("0 0 L * *", "at 00:00, on the last day of the month"),
        ("0 0 1,L * *", "at 00:00, on day 1 of the month and the last day of the month"),
        ("0 0 LW * *", "at 00:00, on the last working day (Monday to Friday) of the month"),
        ("0 0 * * 0", "at 00:00, on Sunday"),
        ("0 0 * * 0,7", "at 00:00, on Sunday"),
        ("0 0 * * 5-7", "at 00:00, on Friday to Sunday"),
        ("0 0 * * mon,wed,fri", "at 00:00, on Monday, Wednesday and Friday"),
        ("0 0 * * 2#2", "at 00:00, on the 2nd Tuesday of the month"),
        ("0 0 * * 5L,1", "at 00:00, on Monday and the last Friday of the month"),
        (
            "0 0 * * 1#1,3#3",
            "at 00:00, on the 1st Monday of the month and the 3rd Wednesday of the month",
        ),
        ("0 0 * * */2", "at 00:00, on Tuesday, Thursday, Saturday and Sunday"),
        ("0 0 1 1-12/5 *", "at 00:00, on day 1 of the month, in January, June and November"),
        ("0 0 13 * 5", "at 00:00, on day 13 of the month, and also on Friday"),
        ("0 0 1-31 * 5", "at 00:00, every day"),
        ("0 0 13 * 0-6", "at 00:00, every day"),
        ("0 0 */10 * 5", "at 00:00, on days 1, 11, 21 and 31 of the month, but only on Friday"),
        ("0 0 13 * */7", "at 00:00, on day 13 of the month, but only on Sunday"),
        ("0 0 1 */3 *", "at 00:00, on day 1 of the month, in January, April, July and October"),
        ("0 0 * jun-aug *", "at 00:00, every day, in June to August"),
        ("@hourly", "at minute 0 of every hour"),
        ("@daily", "at 00:00, every day"),
        ("@midnight", "at 00:00, every day"),
        ("@weekly", "at 00:00, on Sunday"),
        ("@monthly", "at 00:00, on day 1 of the month"),
        ("@yearly", "at 00:00, on day 1 of the month, in January"),
        ("@Annually", "at 00:00, on day 1 of the month, in January"),
    ],
)
def test_words_of_an_expression_name_its_instants(expression: str, words: str) -> None:
    assert cron_in_words(expression) == words


@pytest.mark.parametrize(
    ("cadence", "words"),
    [
        (Every(1), "when a new episode waits"),
        (Every(100), "when 100 new episodes wait"),
        (Cron("0 3 * * *", "Asia/Tokyo"), "at 03:00, every day"),
    ],
)
def test_words_of_a_cadence(cadence: Cadence, words: str) -> None:
    assert in_words(cadence) == words


def test_invalid_expression_raises() -> None:
    with pytest.raises(ValueError, match="write 0 to 59"):
        cron_in_words("61 * * * *")


def _field(least: int, most: int) -> st.SearchStrategy[str]:
    number = st.integers(least, most)
    ranged = st.tuples(number, number).map(lambda pair: f"{min(pair)}-{max(pair)}")
    stepped = st.tuples(ranged | st.just("*"), st.integers(1, 30)).map(lambda p: f"{p[0]}/{p[1]}")
    return st.lists(number.map(str) | ranged | stepped, min_size=1, max_size=3).map(",".join)


EXPRESSIONS = st.tuples(_field(0, 59), _field(0, 23), _field(1, 28), _field(1, 12), _field(0, 7))


@pytest.mark.slow
@settings(max_examples=50)
@given(EXPRESSIONS.map(" ".join))
def test_words_distinguish_or_from_and_between_days_and_weekdays(expression: str) -> None:
    named = cron.fields(expression)

    words = cron_in_words(expression)

    both = len(named.days) < 31 and len(named.weekdays) < 7
    assert ("and also" in words) == (both and named.either)
    assert ("but only" in words) == (both and not named.either)
    assert "  " not in words
    assert not words.endswith(",")
