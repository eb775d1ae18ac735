"""The attributes that a speaker states with ``my``, such as ``my favourite food is sushi``."""

from __future__ import annotations

import re

_ADJ = r"(?:new |current |full |real |first |actual |own |present |newest |main |primary |dream )*"


def _attribute_of(words: str) -> re.Pattern[str]:
    return re.compile(
        rf"{_ADJ}(?:{words})(?:'s)?(?: here| now| at the moment| these days)?,? (?P<rest>(?:is"
        rf"|are|am|was|has|have|will|just|now|used|became|changed|includes?)\b.*)",
        re.IGNORECASE,
    )


ATTRIBUTES: tuple[tuple[str, re.Pattern[str], str, str], ...] = (
    (
        "my_job_at",
        re.compile(rf"{_ADJ}job (?P<rest>(?:is|will be) (?:at|with|for) .+)", re.IGNORECASE),
        "works_at",
        "employer",
    ),
    ("my_name", _attribute_of("name|first name|full name|preferred name"), "name", "names"),
    ("my_age", _attribute_of("age"), "age", "age"),
    (
        "my_birthday",
        _attribute_of("birthday|birthdate|date of birth|bday|b-day"),
        "birthday",
        "day",
    ),
    (
        "my_job",
        _attribute_of("job|job title|profession|occupation|role|title|position"),
        "job",
        "job",
    ),
    ("my_employer", _attribute_of("employer|company|workplace"), "works_at", "employer"),
    ("my_boss", _attribute_of("boss|manager|supervisor|line manager"), "boss", "names"),
    ("my_children", _attribute_of("kids|children"), "has_child", "names"),
    ("my_roommates", _attribute_of("roommates|flatmates|housemates"), "roommate", "names"),
    ("my_sons", _attribute_of("sons|boys"), "son", "names"),
    ("my_daughters", _attribute_of("daughters|girls"), "daughter", "names"),
    ("my_brothers", _attribute_of("brothers"), "brother", "names"),
    ("my_sisters", _attribute_of("sisters"), "sister", "names"),
    ("my_friends", _attribute_of("(?:best|closest) (?:friends|mates)"), "friend", "names"),
    (
        "my_hobby",
        _attribute_of("hobby|hobbies|pastime|favourite (?:hobby|hobbies|pastime|pastimes)"),
        "hobby",
        "things",
    ),
    (
        "favourite",
        re.compile(
            r"(?:new |all[- ]time |absolute |current )*(?:favourite|go-to) (?P<kind>[a-z]+(?:"
            r" [a-z]+){0,2}?)(?: of all time| ever| now| these days)? (?P<rest>(?:is|are|was"
            r"|has|will|used|just|now|became|changed)\b.*)",
            re.IGNORECASE,
        ),
        "",
        "favourites",
    ),
    ("my_hometown", _attribute_of("hometown|home town|home country|birthplace"), "from", "place"),
    (
        "my_home",
        _attribute_of("home|place|flat|apartment|house|address"),
        "lives_in",
        "named_place",
    ),
    ("my_religion", _attribute_of("religion|faith"), "religion", "religion"),
    ("my_nationality", _attribute_of("nationality"), "nationality", "nationality"),
    ("my_pronouns", _attribute_of("pronouns|preferred pronouns"), "pronouns", "pronouns"),
    (
        "my_language",
        _attribute_of("native language|first language|mother tongue|native tongue|second language"),
        "speaks",
        "language",
    ),
    ("my_height", _attribute_of("height"), "height", "phrase"),
    ("my_diet", _attribute_of("diet"), "diet", "diet"),
    ("my_major", _attribute_of("major|degree|course"), "studies", "study"),
    (
        "my_school",
        _attribute_of("school|university|uni|college|alma mater"),
        "studies_at",
        "named_employer",
    ),
    ("my_sign", _attribute_of("sign|star sign|zodiac sign"), "trait", "trait"),
    ("my_team", _attribute_of("team|football team|club"), "supports", "team"),
    ("my_thing", _attribute_of("car|phone|laptop|bike|computer|camera|guitar"), "owns", "phrase"),
)
"""The id, the expression of the noun and what follows, the predicate, and the reader of the object.

An empty predicate is made of the noun: ``favourite_food``.
"""

INVERTED = re.compile(
    r"(?!I |my |our |this |that |it |he |she |they )(?P<o>[\w][\w '&-]{0,60}?) (?:is|are|will"
    r" always be|has to be) (?:still |now |definitely |by far |also )*my "
    r"(?:(?:new |all[- ]time |absolute |current )*favourite (?P<kind>[a-z]+(?: [a-z]+)?)(?: of"
    r" all time| ever| now)?$|(?P<who>.+))",
    re.IGNORECASE,
)
"""``sushi is my favourite food``, and ``Ana is my sister``."""
