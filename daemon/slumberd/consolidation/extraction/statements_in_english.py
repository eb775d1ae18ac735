"""The expressions of the extractor ``conversation``: what follows a subject, and what it states.

An expression is matched from the beginning of what follows the subject, without adverbs and
negation. An effect is written ``predicate=reader:group``, ``predicate='words'``, ``-predicate`` for
a retraction of all objects, or ``-predicate~group`` for a retraction by the words of a group.
"""

from __future__ import annotations

import re
from functools import cache
from typing import Literal, NamedTuple

from slumberd.consolidation.extraction.statements_of_people import PEOPLE
from slumberd.consolidation.extraction.statements_of_taste import TASTE
from slumberd.consolidation.extraction.statements_of_work import WORK

_OFF = (
    r"(?:is|was|has been|had to be|got) (?:just |now |sadly |unfortunately )*(?:off|over|cancell?ed"
    r"|called off|broken off|not happening|no longer happening)"
)
_SOMEBODY_ENDED = (
    r"(?:I|we|he|she|(?-i:[A-Z])\w+(?: and I)?|my [\w ]{2,40}?)(?: have| has)?(?: had to)?"
    r"(?: just)? (?:cancel(?:l?ed)?|call(?:ed)? off|br(?:oke|eak|oken) off|end(?:ed)?)"
    r" (?:the|my|our)"
)
_WHEN = r"(?: (?:now|again|for good|today|yesterday|last (?:week|month|night)|because\b.*))?$"
_HOW_BAD = r"(?:(?:severe|bad|mild|serious|terrible|slight|awful) )?"
_IS_STILL = (
    r"(?:(?:is|was|has been|gets?|got) (?:\w+ )?(?:severe|serious|mild|bad|terrible|awful|worse"
    r"|acting up|back|better)|makes|means|flared? up|started)\b(?! (?:gone|up to))"
)

CLAUSES: tuple[tuple[str, str, str], ...] = (
    (
        "home_is",
        r"home is (?:now |currently )?(?P<o>(?-i:[A-Z]).+)",
        "lives_in=named_place:o",
    ),
    (
        "is_home",
        r"(?P<o>(?-i:[A-Z])[\w '-]+?) (?:is|has been|has become|became) (?:now |my |our )*"
        r"(?:new )?home(?: now|$| for| since| as of| from)",
        "lives_in=named_place:o",
    ),
    (
        "wedding_off",
        rf"(?:(?:the|my|our) wedding {_OFF}|{_SOMEBODY_ENDED} wedding){_WHEN}",
        "-marital_status='engaged'",
    ),
    (
        "engagement_off",
        rf"(?:(?:the|my|our) engagement {_OFF}|{_SOMEBODY_ENDED} engagement){_WHEN}",
        "-marital_status='engaged'; -partner",
    ),
    (
        "call_me",
        r"(?:please,? |you can |just |everyone |everybody |people |most people |(?:my )?friends"
        r" |(?:my )?(?:family|colleagues|mates) |but |so |all )*calls? me"
        r" (?P<o>(?-i:[A-Z]).+)",
        "name=names:o",
    ),
    ("name_is", r"(?:the )?name is (?P<o>(?-i:[A-Z]).+)", "name=names:o"),
    (
        "prescribed",
        r"(?:they|(?:my|the|a) (?:doctor|gp|psychiatrist|dermatologist|cardiologist|therapist))"
        r" (?:has |have |just |now )*(?:put me on|prescribed me|prescribed|started me on"
        r"|switched me to) (?P<o>.+)",
        "medication=medication:o",
    ),
    (
        "first_day",
        r"(?:it )?(?:\w+ )?(?:was|is) my first (?:day|week) (?:at|with) (?P<o>.+)",
        "works_at=named_employer:o",
    ),
    (
        "last_day",
        r"(?:it )?(?:\w+ )?was my last (?:day|week) (?:at|with) (?P<o>.+)",
        "worked_at=named_employer:o; -works_at~o",
    ),
    (
        "last_day_was",
        r"my last day (?:at|with) (?P<o>.+?) (?:was|is) .+",
        "worked_at=named_employer:o; -works_at~o",
    ),
    (
        "moved_out",
        r"(?P<o>(?-i:[A-Z])\w+) (?:has |is )?(?:now |just |finally )*(?:moved|moving) out\b",
        "-lives_with~o; -roommate~o",
    ),
    (
        "makes_children",
        r"that (?:is|makes) (?P<o>\w+) (?:kids|children)\b",
        "children=count:o",
    ),
    (
        "let_me_go",
        r"(?:they|the company|my boss) (?:let me go|fired me|laid me off|sacked me)\b",
        "-works_at",
    ),
    (
        "divorce",
        r"(?:my|our|the) divorce (?:is|was|became|went|came) (?:now |finally )*(?:final"
        r"|finali[sz]ed|through|done)",
        "marital_status='divorced'; -partner",
    ),
    (
        "not_together",
        r"(?:we|\w+ and I) are (?:no longer|not) (?:a couple|together)\b",
        "marital_status='single'; -partner",
    ),
    (
        "stolen",
        r"(?:my|our) (?P<o>[\w -]+?) (?:got|was|has been) (?:stolen|totaled|totalled|wrecked)\b",
        "-owns=owned:o",
    ),
    ("stole", r"(?:somebody|someone) stole (?:my|our) (?P<o>.+)", "-owns=owned:o"),
    (
        "one_favourite",
        r"one of my (?:all[- ]time |absolute )*favourite \w+(?: \w+)?(?: of all time)? is"
        r" (?P<o>.+)",
        "likes=favourites:o",
    ),
    (
        "among_favourites",
        r"(?P<o>[\w '-]+?) (?:is|are) (?:absolutely |definitely |also |still |probably"
        r" )*(?:one|some)"
        r" of my (?:all[- ]time |absolute )*favou?rite",
        "likes=things:o",
    ),
    (
        "allergy_gone",
        r"my (?P<o>[\w-]+(?: [\w-]+)?) allergy (?:is|has) (?:now |finally |completely )*"
        r"(?:gone|cured|over|disappeared|vanished)\b",
        "-allergic_to=allergy:o",
    ),
    (
        "my_allergy",
        rf"my {_HOW_BAD}(?P<o>[\w-]+(?: [\w-]+)?) allergy {_IS_STILL}",
        "allergic_to=allergy:o",
    ),
    (
        "my_allergy_to",
        rf"my {_HOW_BAD}allergy to (?P<o>[\w-]+(?: [\w-]+)?) {_IS_STILL}",
        "allergic_to=allergens:o",
    ),
    ("no_pets", r"I (?:do not have any|have no) (?:more )?pets\b", "-has_pet; -pet_name"),
    (
        "no_allergies",
        r"I (?:do not have any|have no) (?:known )?allergies\b(?! to\b)"
        r"|I am not allergic to any(?:thing)?(?: at all| any ?more| now)?(?:$|,)",
        "-allergic_to",
    ),
    (
        "not_with",
        r"I am (?:no longer|not) (?:with|dating|seeing) (?P<o>(?-i:[A-Z])\w+)",
        "-partner~o",
    ),
    (
        "no_children",
        r"(?:I|we) (?:do not have (?:any )?|have no |never had (?:any )?)(?:kids|children)(?: of"
        r" (?:my|our) own| at all| together)?(?:$|,)",
        "children='none'",
    ),
    (
        "named_son",
        r"(?:I|we) (?:have |just |recently |also )*(?:have|had|got|welcomed) (?:a|our|one) (?:\w+"
        r" ){0,2}boy(?:,|,? (?:named|called)) (?P<o>(?-i:[A-Z])(?!\w*'s\b).+)",
        "son=names:o; has_child='son'",
    ),
    (
        "named_daughter",
        r"(?:I|we) (?:have |just |recently |also )*(?:have|had|got|welcomed) (?:a|our|one) (?:\w+"
        r" ){0,2}girl(?:,|,? (?:named|called)) (?P<o>(?-i:[A-Z])(?!\w*'s\b).+)",
        "daughter=names:o; has_child='daughter'",
    ),
    (
        "named_sons",
        r"(?:I|we) (?:have|have got) (?:\w+ )?(?P<p>two|three|four|\d) (?:\w+ )?(?:boys|sons),?(?:"
        r" (?:named|called))? (?P<o>(?-i:[A-Z])(?!\w*'s\b).+)",
        "son=names:o; children=count:p",
    ),
    (
        "named_daughters",
        r"(?:I|we) (?:have|have got) (?:\w+ )?(?P<p>two|three|four|\d) (?:\w+ )?(?:girls"
        r"|daughters),?(?: (?:named|called))? (?P<o>(?-i:[A-Z])(?!\w*'s\b).+)",
        "daughter=names:o; children=count:p",
    ),
    (
        "named_children",
        r"(?:I|we) (?:have|have got|am (?:a |the )?(?:proud |single )?(?:mom|mum|mother|father|dad"
        r"|parent) (?:of|to)) (?P<p>two|three|four|five|six|\d)"
        r"(?: (?:\w+ )?(?:kids|children|kiddos))?,?(?: (?:named|called))?"
        r" (?P<o>(?-i:[A-Z])(?!\w*'s\b).+)",
        "has_child=names:o; children=count:p",
    ),
    (
        "named_brothers",
        r"(?:I|we) (?:have|have got) (?P<p>(?:two|three|four|\d) (?:\w+ )?brothers),?(?: (?:named"
        r"|called))? (?P<o>(?-i:[A-Z])(?!\w*'s\b).+)",
        "brother=names:o; has_sibling=siblings:p",
    ),
    (
        "named_sisters",
        r"(?:I|we) (?:have|have got) (?P<p>(?:two|three|four|\d) (?:\w+ )?sisters),?(?: (?:named"
        r"|called))? (?P<o>(?-i:[A-Z])(?!\w*'s\b).+)",
        "sister=names:o; has_sibling=siblings:p",
    ),
    (
        "spare_time",
        r"(?:in|during|for) (?:my|our) (?:free|spare|down) ?time,? (?:I|we) (?:also |mostly "
        r"|usually"
        r" |often |really )*(?:like to |love to |enjoy |like |love )?(?P<o>(?!have|cannot"
        r"|will)\w.+)",
        "hobby=activity:o",
    ),
    (
        "in_spare_time",
        r"I (?:also |mostly |usually |often )*(?!have|cannot|will|do not|can|used)(?P<o>\w+"
        r"(?: (?!in\b)[\w'-]+){0,3}) in my (?:free|spare) time$",
        "hobby=activity:o",
    ),
    (
        "not_anywhere",
        r"I (?:no longer work|do not work) (?:anywhere|at the moment|right now)(?: any ?more"
        r"|any longer|$)",
        "-works_at",
    ),
    ("stopped_work", r"I (?:no longer work$|do not work any ?more$)", "-works_at"),
    (
        "hired_me",
        r"(?!(?:nobody|no one|somebody|someone|they|he|she|it|who)\b)"
        r"(?P<o>(?-i:[A-Z])[\w&.' -]+?) (?:has |have |just |finally )*hired me\b",
        "works_at=company:o",
    ),
    (
        "day_is_birthday",
        r"(?P<o>[\w ,]{3,30}?) is my (?:birthday|bday|b-day)$",
        "birthday=day:o",
    ),
    (
        "is_language",
        r"(?P<o>(?-i:[A-Z])\w+) is my (?:first|native|second|third) (?:language|tongue)",
        "speaks=language:o",
    ),
    (
        "is_mother_tongue",
        r"(?P<o>(?-i:[A-Z])\w+) is my mother tongue",
        "speaks=language:o",
    ),
    (
        "is_hobby",
        r"(?P<o>[\w ]{3,30}?) (?:is|has become) (?:one of )?my (?:main |biggest |new |only |big"
        r" )*(?:hobby"
        r"|hobbies|pastime)$",
        "hobby=things:o",
    ),
    (
        "dream_is",
        r"my (?:big |biggest |lifelong |ultimate |main )*(?:dream|lifelong goal) is to (?P<o>.+)",
        "wants=wish:o",
    ),
    (
        "diet_is_over",
        r"my (?:days as an? )?(?P<o>vegan|vegetarian|pescatarian|keto)(?: days| phase| diet|"
        r" life| experiment)?"
        r" (?:is|are) (?:now |finally |officially )*(?:over|done|finished|history|behind me)\b",
        "-diet~o",
    ),
    ("nothing_beats", r"nothing beats (?P<o>.+)", "likes=things:o"),
    (
        "is_favourite",
        r"(?P<o>[\w '-]+?) (?:is|are) my (?:all[- ]time |absolute )?favourites?$",
        "likes=things:o",
    ),
)
"""The id, the expression of the clause, and the effects."""


Subjects = Literal["any", "speaker", "known"]
"""Who may be the subject: everybody, the speaker only, or the speaker, relatives and pets."""


class Effect(NamedTuple):
    """One thing that an expression states or takes back.

    Attributes:
        predicate: What is stated or taken back.
        retracts: Whether it is taken back.
        reader: The name of the reader of the object; empty for fixed words.
        group: The group of the expression with the object.
        words: The fixed object.
    """

    predicate: str
    retracts: bool = False
    reader: str = ""
    group: str = ""
    words: str = ""


class StatementExpression(NamedTuple):
    """An expression, and what it states.

    Attributes:
        id: Its name in ``extracted.by``.
        when: What follows the subject.
        effects: What it states; when the first one cannot be read, it states nothing.
        negated: What it states under a negation: ``-`` takes back the first object, a predicate
            states the object with it. Empty: nothing.
        subjects: Who may be the subject.
    """

    id: str
    when: re.Pattern[str]
    effects: tuple[Effect, ...]
    negated: str
    subjects: Subjects


_EFFECT = re.compile(
    r"(?P<sign>-?)(?P<predicate>\w+)(?:='(?P<words>[^']+)'|=(?P<reader>\w+):(?P<group>\w)"
    r"|~(?P<by>\w+))?"
)


def _effect(text: str) -> Effect:
    match = _EFFECT.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r} is no effect")
    parts = match.groupdict()
    return Effect(
        parts["predicate"],
        bool(parts["sign"]),
        parts["reader"] or "",
        parts["group"] or parts["by"] or "",
        parts["words"] or "",
    )


@cache
def clause_expressions() -> tuple[StatementExpression, ...]:
    """Return the expressions of whole clauses; the speaker is their subject."""
    return tuple(
        StatementExpression(
            id, re.compile(when, re.IGNORECASE), tuple(map(_effect, effects.split("; "))), "", "any"
        )
        for id, when, effects in CLAUSES
    )


@cache
def expressions() -> tuple[StatementExpression, ...]:
    """Return the expressions, in the order in which they are tried."""
    return tuple(
        StatementExpression(
            id,
            re.compile(when, re.IGNORECASE if "[A-Z]" not in when else 0),
            tuple(map(_effect, effects.split("; "))),
            negated,
            subjects,  # type: ignore[arg-type]  # the table gives no other word
        )
        for id, when, effects, negated, subjects in (*WORK, *PEOPLE, *TASTE)
    )


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
