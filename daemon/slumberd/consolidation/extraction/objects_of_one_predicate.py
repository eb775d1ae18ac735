"""Read objects that need a form of their own: studies, skills, siblings and so on."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from slumberd.consolidation.extraction.objects_in_english import (
    READERS,
    Object,
    cut,
    is_object,
    listed,
    plain,
)
from slumberd.consolidation.extraction.vocabulary import Vocabulary, word_set


def _company(text: str, vocabulary: Vocabulary) -> list[Object]:
    """Return an organisation that is no group, no event and no day."""
    found = READERS["named_employer"](text, vocabulary)
    return [] if found and _NO_COMPANY.search(str(found[0])) else found


def _employer_no_place(text: str, vocabulary: Vocabulary) -> list[Object]:
    return [one for one in _company(text, vocabulary) if not is_place(str(one), vocabulary)]


def is_place(name: str, vocabulary: Vocabulary) -> bool:
    """Return whether a name is that of a known town or country."""
    return vocabulary.holds("places", name.split(",")[0])


_NO_COMPANY = re.compile(
    r"\b(?:Club|Team|Gym|Choir|Band|Zoom|Discord|Facebook|Instagram|Twitter|TikTok|WhatsApp"
    r"|Reddit|Tinder|Netflix|Spotify|League)\b"
)


def _study(text: str, vocabulary: Vocabulary) -> list[Object]:
    words = plain(cut(text, strict=True))
    few = words.split()
    fits = words and len(few) <= 4 and not _NO_STUDY.search(words) and not CUT_NAME.match(words)
    return [words] if fits and is_object(words) else []


CUT_NAME = re.compile(r"^(?:hard|abroad|all|full|part|day|night|medical school)\b", re.IGNORECASE)
_NO_STUDY = re.compile(
    r"\b(?:exams?|tests?|finals?|midterms?|quiz|week|chapter|notes|together|lot|more|less|for"
    r"|abroad|online|library"
    r"|semester|tonight|study|classes|class|homework|school|college|university|freshman"
    r"|sophomore|junior|senior"
    r"|good|bad|great|grad|graduate|undergrad|undergraduate|exchange|international|transfer"
    r"|hard|first|second|third|final|high|phd|masters|a|straight)\b",
    re.IGNORECASE,
)


def _school(text: str, vocabulary: Vocabulary) -> list[Object]:
    found = READERS["named_employer"](text, vocabulary)
    return found or [
        words
        for words in [plain(cut(text, strict=True))]
        if words.casefold()
        in ("college", "university", "high school", "law school", "medical school", "art school")
    ]


def _housemates(text: str, vocabulary: Vocabulary) -> list[Object]:
    """Return with whom somebody lives; people also live with an illness."""
    found = READERS["nouns"](text, vocabulary)
    is_ill = any(vocabulary.holds("health", str(one)) for one in found)
    return [] if is_ill or (found and _NO_HOUSEMATE.search(str(found[0]))) else found


_NO_HOUSEMATE = re.compile(
    r"\b(?:pain|stress|fear|regrets?|guilt|grief|shame|hope|disease|disorder|condition|illness"
    r"|disability|injury|consequences|decision|choice|view|peace|syndrome|allergy|allergies)\b",
    re.IGNORECASE,
)


def _school_name(text: str, vocabulary: Vocabulary) -> list[Object]:
    """Return a school whose name is in capitals; people also study at home and in cafes."""
    found = READERS["named_employer"](text, vocabulary)
    return [] if found and _NO_SCHOOL.search(str(found[0])) else found


_NO_SCHOOL = re.compile(
    r"\b(?:Starbucks|Library|Caf[eé]|Coffee|Costa|Home|Zoom|Discord)\b|'s$", re.IGNORECASE
)


def _studied_by(text: str, vocabulary: Vocabulary) -> list[Object]:
    """Return the subject in ``second-year law`` student."""
    return _study(_OF_YEAR.sub("", text.strip()), vocabulary)


_OF_YEAR = re.compile(
    r"^(?:(?:\w+[- ]year|full-time|part-time|mature|graduate|grad|undergraduate|postgraduate|phd"
    r"|masters?|master's|exchange|international|former|final|new|current|doctoral)(?: |$))+",
    re.IGNORECASE,
)


def _near_place(text: str, vocabulary: Vocabulary) -> list[Object]:
    """Return ``near Boston`` for a home close to a town."""
    link, _, place = (
        re.sub(r"^(?:just )?outside of ", "outside ", text)
        .rpartition(" of ")[2]
        .removeprefix("just ")
        .partition(" ")
    )
    place = place.removeprefix("to ")
    return [f"near {name}" for name in READERS["named_place"](place, vocabulary)] if link else []


def _skill(text: str, vocabulary: Vocabulary) -> list[Object]:
    """Return a language, an instrument or another skill that somebody learns."""
    for name in ("language", "plays"):
        if found := READERS[name](text, vocabulary):
            return found
    words = plain(cut(text, strict=True))
    is_known = words.casefold().split()[:1] and words.casefold().split()[0] in _SKILLS
    return [words] if is_known and is_object(words) and len(words.split()) <= _MOST_WORDS else []


_SKILLS = word_set(
    "to python java javascript rust coding programming cooking knitting sewing crochet "
    "crocheting pottery sailing surfing skiing snowboarding drawing painting photography "
    "calligraphy woodworking carpentry baking swimming driving climbing dancing salsa tango "
    "ballet karate judo yoga singing juggling sql react golang go chess gardening welding "
    "typescript blender origami bouldering"
)


def _lesson(text: str, vocabulary: Vocabulary) -> list[Object]:
    words = plain(cut(text))
    few = words.split()
    fits = 0 < len(few) <= 2 and is_object(words) and not _NO_LESSON.search(words)
    return [words] if fits else []


_NO_LESSON = re.compile(
    r"\b(?:one|two|three|four|online|workout|my|morning|evening|night|my|more|extra|some|few"
    r"|many|summer|fall|spring|gym|fitness|hard|important|life|valuable|last|other|no|any|good"
    r"|great|first)\b",
    re.IGNORECASE,
)


def _handed(text: str, vocabulary: Vocabulary) -> list[Object]:
    return [f"{text.casefold()}-handed"]


def _child(text: str, vocabulary: Vocabulary) -> list[Object]:
    return [{"boy": "son", "girl": "daughter"}.get(text.casefold(), text.casefold())]


def _siblings(text: str, vocabulary: Vocabulary) -> list[Object]:
    """Return each part of ``a brother and two sisters``, as it is written without an article."""
    parts = re.split(r"\s+and\s+", text.casefold())
    return [re.sub(r"^(?:a|an|one) ", "", part) for part in parts]


def _allergens(text: str, vocabulary: Vocabulary) -> list[Object]:
    found: list[Object] = []
    for entry in listed(cut(text, strict=True)):
        words = plain(entry).removesuffix("'s")
        if (
            not is_object(words)
            or len(words.split()) > _MOST_WORDS
            or words.casefold() in _NO_ALLERGENS
        ):
            break
        found.append(words)
    return found


_MOST_WORDS = 3
_NO_ALLERGENS = frozenset(
    {
        "work",
        "mondays",
        "people",
        "bullshit",
        "drama",
        "stupidity",
        "mornings",
        "food",
        "seasonal",
        "allergies",
        "bad",
        "severe",
        "exercise",
    }
)


def _allergy(text: str, vocabulary: Vocabulary) -> list[Object]:
    """Return what an allergy is to, as "allergic to" names it: ``nuts`` of a ``nut`` allergy."""
    found = _allergens(text, vocabulary)
    return [_plural(str(one)) for one in found]


def _plural(words: str) -> str:
    last = words.casefold().rsplit(" ", 1)[-1]
    if last not in _COUNTED:
        return words
    return (
        f"{words[:-1]}ies" if last.endswith("y") else f"{words}{'es' if last == 'tomato' else 's'}"
    )


_COUNTED = word_set(
    "nut peanut walnut almond cashew hazelnut pecan pistachio egg prawn mussel oyster strawberry"
    " raspberry tomato mushroom apple banana grape avocado bee wasp cat dog horse rabbit hamster"
    " feather mite seed lentil chickpea onion"
)


def _injury(text: str, vocabulary: Vocabulary) -> list[Object]:
    return [f"injured {re.sub('^(?:left|right) ', '', text.casefold())}"]


def _consumed(text: str, vocabulary: Vocabulary) -> list[Object]:
    return READERS["food"](text, vocabulary) or READERS["drink"](text, vocabulary)


def _pastime(text: str, vocabulary: Vocabulary) -> list[Object]:
    words = plain(cut(text, strict=True))
    one = words.split(",")[0].split(" and ")[0]
    few = one.split()
    fits = (
        len(few) in (1, 2)
        and is_object(one)
        and (few[0].endswith(("ing", "y", "a", "ery")) or one.casefold() in _PASTIMES)
    )
    return [one] if fits and one.islower() and not _NO_PASTIME.match(one) else []


_PASTIMES = word_set(
    "chess golf tennis pilates ceramics crochet karate judo crossfit guitar piano origami ballet"
)
_NO_PASTIME = re.compile(
    r"^(?:any|every|many|trouble|by|my|way|fighting|arguing|everything|anything|already|early"
    r"|really|a|thing|nothing|something|money|party)\b"
)


def _heard(text: str, vocabulary: Vocabulary) -> list[Object]:
    entries = [plain(entry) for entry in listed(cut(text))]
    found = [entry for entry in entries if is_object(entry) and len(entry.split()) <= 4]
    is_heard = found and (
        found[0][:1].isupper()
        or re.search(
            r"\b(?:music|jazz|rock|pop|metal|podcasts?|rap|hip[- ]hop|classical|techno|country"
            r"|folk|k-pop|audiobooks|blues|indie|punk|reggae)\b",
            found[0],
        )
    )
    return [*found] if is_heard and not re.match(r"(?:the|your|my) ", text) else []


def _tool(text: str, vocabulary: Vocabulary) -> list[Object]:
    words = plain(cut(text, strict=True).split(",")[0])
    return (
        [words]
        if is_object(words) and len(words.split()) <= 3 and not _NO_TOOL.match(words)
        else []
    )


_NO_TOOL = re.compile(
    r"^(?:work|team|job|one|life|being|full|part|plan|city|place|school|major|English|Spanish)\b",
    re.IGNORECASE,
)


def _trip(text: str, vocabulary: Vocabulary) -> list[Object]:
    found = READERS["named_place"](text, vocabulary)
    return [] if found and _NO_TRIP.search(str(found[0])) else found


_NO_TRIP = re.compile(
    r"\b(?:University|College|School|Target|Walmart|Costco|Ikea|IKEA|Starbucks|Mass|Church"
    r"|Walgreens|Zoom|Disney\+|Yoga|Pilates|CVS|Class|Best Buy|Mom|Mum|Dad)\b|'s$"
)


def _wish(text: str, vocabulary: Vocabulary) -> list[Object]:
    words = cut(text)
    few = words.split()
    fits = 1 < len(few) <= 6 and len(words) > 6 and not _NO_WISH.search(words)
    if _GOES.match(words) and not any(word[0].isupper() for word in few):
        return []
    return [words] if fits else []


_GOES = re.compile(r"^(?:visit|go|travel|move|see|live)\b")
_NO_WISH = re.compile(
    r"\b(?:it|this|that|you|them|him|her|your|something|anything|there|some|one|what|how|these"
    r"|those|more|someone|everyone|stuff|thing|things|together|up|out|back|home|bed|tonight"
    r"|better|him|us|me)\b",
    re.IGNORECASE,
)


def _subject(text: str, vocabulary: Vocabulary) -> list[Object]:
    words = plain(cut(text, strict=True).split(",")[0].split(" and ")[0])
    fits = 0 < len(words.split()) <= 2 and is_object(words) and not _NO_SUBJECT.search(words)
    return [f"{words} teacher"] if fits else []


_NO_SUBJECT = re.compile(
    r"\b(?:kids?|children|students?|myself|lessons?|classes|class|people|grade|graders|dog|son"
    r"|daughter|lesson|part|full|others?|her|him|adults|me|us|you|how|toddlers|school"
    r"|kindergarten|online)\b",
    re.IGNORECASE,
)


def _bare_job(text: str, vocabulary: Vocabulary) -> list[Object]:
    """Return a job without an article, of at least two words, such as ``team manager``."""
    found = READERS["job"](text, vocabulary)
    return found if found and len(str(found[0]).split()) > 1 else []


OWN_READERS: Mapping[str, Callable[[str, Vocabulary], list[Object]]] = {
    "allergens": _allergens,
    "allergy": _allergy,
    "bare_job": _bare_job,
    "child": _child,
    "company": _company,
    "employer_no_place": _employer_no_place,
    "consumed": _consumed,
    "drunk": _consumed,
    "handed": _handed,
    "heard": _heard,
    "housemates": _housemates,
    "injury": _injury,
    "lesson": _lesson,
    "near_place": _near_place,
    "pastime": _pastime,
    "school": _school,
    "school_name": _school_name,
    "siblings": _siblings,
    "skill": _skill,
    "studied_by": _studied_by,
    "study": _study,
    "subject": _subject,
    "tool": _tool,
    "trip": _trip,
    "wish": _wish,
}
"""Further readers of objects by their name in `statements_in_english`."""
