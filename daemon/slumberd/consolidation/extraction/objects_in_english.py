"""Read the objects of statements in plain English: names, places, jobs, lists and so on."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence

from slumberd.consolidation.extraction.clauses import CUT
from slumberd.consolidation.extraction.normalisers import MONTHS, WEEKDAYS, read_number
from slumberd.consolidation.extraction.vocabulary import Vocabulary, singular, word_set

MAX_OBJECT = 80
"""In characters; a longer object states nothing."""

_MOST_WORDS = 6

Object = str | int | float

_END = re.compile(
    rf"[!?()\"{CUT}\u2026;:]|(?<! St)(?<! Mt)(?<! Dr)\.(?!\w)|,?\s+(?:because|but|since|when"
    rf"|whenever|while|after"
    rf"|before|until"
    rf"|till|that|which|who|whose"
    r"|where|than|if|so|though|although|cause|cuz|bc|as|especially|lately|recently|now|today"
    r"|tonight|yesterday|tomorrow|any ?more|any longer|too|again|already|also|either|lol"
    r"|ha(?:ha)+|lmao"
    r"|tho|btw|rn|honestly|actually|really|very|right|instead|together|though|every|these days"
    r"|at the moment"
    r"|a lot(?! of)|so much|very much|the most|the best|as well|at all|all the time|more and"
    r" more|ever since|ever"
    r"|out there|here|there|for now|for good|(?:my|your|him|her)self|dude"
    r"|bro|better|wouldnt|wont|other than|to (?:make|get|see|be|do|have)|and(?= |$)(?= (?:its"
    r"|it|im|i|ill|wouldnt|dont|cant|thats)\b)|altogether|professionally|competitively"
    r"|regularly|occasionally|frequently|badly|completely|entirely|totally|and (?:I"
    r"|we|he|she|they|it|you|my|our|his|her|this|that"
    r"|then|now|also|always|so|would|am|is|are|was|will|have|has|can|do|does|not|get|got|go"
    r"|went)|I|we|he|she|they|you|is|are|was|were|has|will|can|do"
    r"|(?-i:its?)|thats|theyre|im|more|most|too+|like|such as|from time to time|depending"
    r"|considering|given|for (?:its|his|her|their|those|being|how)|not|due|despite|even|hoping"
    r"|thanks|via|per|pls|please|once|twice|yet|still|sometimes|usually"
    r"|since|for (?:a|an|the|about|over|almost|nearly|many|some|\d+|two|three|four|five|six|seven"
    r"|eight|nine|ten|years?|months?|now|me|us|fun|work|years)"
    r"|last (?:\w+)|this (?:week|month|year|summer|winter|spring|fall|autumn|weekend|time"
    r"|morning|one)"
    r"|next \w+|(?:a|two|three|few|\d+) \w+ ago|in (?:19|20)\d\d|in (?:january|february|march|april"
    r"|may|june|july|august|september|october|november|december)|on (?:mon|tues|wednes|thurs|fri"
    r"|satur|sun)days?|on weekends?|right now|for breakfast|for lunch|for dinner)\b",
    re.IGNORECASE,
)
_PREPOSITION = re.compile(
    r",?\s+(?:in|on|at|with|to|from|by|near|during|about|over|for|under|around|outside|into"
    r"|through|next|within|next to|of mine|out|after|named|called)\b",
    re.IGNORECASE,
)
_DETERMINER = re.compile(
    r"^(?:(?:a lot of|lots of|all kinds of|a bit of|a couple of|a|an|the|my|our|some|any"
    r"|another|other|all|both|his|her|own|brand[- ]new|new|newest"
    r"|current|latest|updated|still|now|just|very|really|also|new|a lot of|lots of|all kinds of"
    r"|a bit of|a couple of|more|mostly|mainly|only)\s+)+",
    re.IGNORECASE,
)
_NO_OBJECT = re.compile(
    r"^(?:often|always|usually|sometimes|never|wouldnt|dont|didnt|cant|find|different|various"
    r"|certain|areas|(?:watching|playing|using|doing|eating|wearing"
    r"|trying|making)$|it|this|that|these|those|them|him|her|me|you|us|there|here|what"
    r"|how|when|where|why|who"
    r"|to|so|too|one|ones|something|anything|everything|nothing|someone|everyone|anyone|nobody|your"
    r"|stuff|things?|lots?|way|idea|fact|sound|look|same|such|each|his|their|its|if|being"
    r"|having|seeing"
    r"|getting|going|being|thinking|hearing|myself|yourself|himself|herself|mine|yours|much"
    r"|many|none"
    r"|today|tomorrow|yesterday|tonight|now|later|soon|morning|week|month|year|time|day|bit"
    r"|more|most"
    r"|less|all|both|first|second|last|next|good|great|nice|fine|ok|okay|better|best|worse|bad"
    r"|and|or|not|no|from|at|in|on|with|for|of|by|people say|a|an|the|people|person|kind|type"
    r"|sort|part"
    r"|how|working|trying|making|taking|doing|meeting|hello|photos?|pics?|pictures?|video"
    r"|question|answer|vibes?|energy|point|advice"
    r"|suggestions?|recommendations?|help|response|chatting|talking|i|we|he|she|they|can)\b"
    r"(?!'|-)",
    re.IGNORECASE,
)
_CAPITALISED = re.compile(
    r"(?:the |The )?(?P<name>(?:St\.? )?[^\W\d_a-z][\w'\u2019.&-]*(?:(?: (?:of|de|da|do|del|la"
    r"|le|los|las"
    r"|upon|am|and|&|the|van|von|der|for|y|e) (?=[^\W\d_a-z])| )[^\W\d_a-z][\w'\u2019.&-]*){0,5}"
    r"(?:, [^\W\d_a-z][\w'.-]+(?: [^\W\d_a-z][\w'.-]+)?)?)"
)
_CALENDAR_NAMES = frozenset((*MONTHS, *WEEKDAYS))
_NOT_PLACES = word_set(
    "fear denial hope peace pain town hell love luxury person bed school college university "
    "the a an my our this that it here there what where uni hospital hospitals general total "
    "school two one public school constant private shared school dorms dorm different theory "
    "mind general spanish french german english style limbo harmony sin chaos poverty"
)


def cut(text: str, *, strict: bool = False) -> str:
    """Return the words before the first boundary.

    Args:
        text: The words after a verb.
        strict: Whether a preposition is a boundary too.
    """
    end = _END.search(f" {text}")
    words = f" {text}"[: end.start()] if end else text
    if strict and (end := _PREPOSITION.search(words.strip())):
        words = words.strip()[: end.start()]
    return _LINK_AT_END.sub("", words.strip(" ,.'\"*~_-"))


_LINK_AT_END = re.compile(r"\s+(?:and|or|with|of|the|a)$", re.IGNORECASE)


def plain(text: str) -> str:
    """Return a noun phrase without articles and words such as ``current`` and ``new``."""
    return _DETERMINER.sub("", text).strip(" ,.'\"*~_-")


def is_object(text: str) -> bool:
    """Return whether a noun phrase names something."""
    return (
        1 < len(text) <= MAX_OBJECT
        and len(text.split()) <= _MOST_WORDS
        and not _NO_OBJECT.match(text)
        and not text.endswith((" ones", " one", " stuff", " things", " thing"))
        and CUT not in text
        and any(map(str.isalnum, text))
    )


def listed(text: str) -> list[str]:
    """Return the entries of a list such as ``tea, coffee and milk``."""
    parts = _parts(text)
    has_and = re.search(r"\b(?:and|or)\b|&", text) is not None
    entries = parts[:1]
    for part in parts[1:]:
        words = part.split()
        limit = 3 if has_and else 2
        if len(words) > limit or _NO_OBJECT.match(part):
            break
        entries.append(part)
    return entries


def _parts(text: str) -> list[str]:
    """Return what stands between commas and words such as "and", without comments."""
    first, *further = [_LINK_AT_END.sub("", part).strip() for part in _SEPARATOR.split(text)]
    return list(filter(None, (first, *(part for part in further if not _COMMENT.fullmatch(part)))))


_COMMENT = re.compile(
    r"(?!(?:jelly|family|lily|holly|jolly|fly|butterfly|dragonfly|firefly|assembly)$)[a-z]+ly"
    r"|whatever|hands down|no doubt|for sure|period|sir|madam|ma'am|mate|doc|doctor|man|guys|folks"
    r"|bud|buddy|pal|love|dear|mostly|et cetera|etc|to be honest|in fact|believe it or not"
    r"|above all|most of all|of course|in particular|for example|I think|I guess|you know",
)
"""What a speaker adds after a comma without going on with the list, as in ``cats, sadly``."""

_SEPARATOR = re.compile(r"\s*,\s*(?:and |or |& )?(?:also )?|\s+(?:and|or|&|nor)\s+(?:also )?")


def _things(text: str, strict: bool) -> list[Object]:
    text = _ADJECTIVE_FIRST.sub(r"\1 ", text)
    entries = [plain(entry) for entry in listed(cut(text, strict=strict))]
    return (
        [entry for entry in entries if is_object(entry)]
        if entries and is_object(entries[0])
        else []
    )


_ADJECTIVE_FIRST = re.compile(
    r"^((?:clear|simple|short|quick|long|small|big|quiet|loud|slow|fast|warm|cold|hot|light|dark"
    r"|soft"
    r"|clean|modern|old|cosy|cozy|calm|fresh|sweet|strong|minimal|easy|cheap|rich|deep|bright"
    r"|honest"
    r"|direct|concise|friendly|casual)), (?=\w+ \w)",
    re.IGNORECASE,
)
"""``clear, measurable goals`` is one thing."""


def read_things(text: str, vocabulary: Vocabulary) -> list[Object]:
    """Return what somebody likes: noun phrases, prepositions included.

    ``the colour`` is nothing: only its conversation knows which one.
    """
    found = _things(text, strict=False)
    is_known = not _POINTS_BACK.match(text) or (found and str(found[0])[0].isupper())
    return [one for one in found if str(one)[0].isalpha()] if is_known else []


def read_favourites(text: str, vocabulary: Vocabulary) -> list[Object]:
    """Return what somebody likes best: noun phrases, also with ``the``."""
    return _things(text, strict=False)


_POINTS_BACK = re.compile(r"(?:the|all the|my|our|his|her|their|both|some of)\s", re.IGNORECASE)


def read_nouns(text: str, vocabulary: Vocabulary) -> list[Object]:
    """Return noun phrases up to a preposition."""
    return _things(text, strict=True)


def read_noun(text: str, vocabulary: Vocabulary) -> list[Object]:
    """Return one noun phrase up to a preposition."""
    found = plain(cut(text, strict=True).split(",")[0])
    return [found] if is_object(found) else []


def read_phrase(text: str, vocabulary: Vocabulary) -> list[Object]:
    """Return one noun phrase, prepositions included."""
    found = plain(cut(text).split(",")[0])
    return [found] if is_object(found) else []


def _capitalised(text: str) -> str:
    found = _CAPITALISED.match(text)
    name = found["name"].strip(" .,'-&") if found else ""
    name = cut(name)
    return "" if name.casefold() in _CALENDAR_NAMES or name in ("I", "A", "The") else name


def read_place(text: str, vocabulary: Vocabulary) -> list[Object]:
    """Return a place: a name in capitals, or one or two words in small letters."""
    text = re.sub(
        r"^(?:downtown|central|north(?:ern)?|south(?:ern)?|east(?:ern)?|west(?:ern)?|sunny"
        r"|rainy|beautiful|good old|upstate|lovely"
        r"|the (?:city|town|suburbs|outskirts|middle|heart|cent(?:er|re)|north|south|east"
        r"|west) of) (?=[A-Z])",
        "",
        text,
    )
    text = _TOWN_CALLED.sub("", text)
    if village := _VILLAGE.match(text):
        return [village[0].split(" ", 1)[1]]
    if name := _capitalised(text):
        return [] if _IS_TIME.match(name) else [name]
    words = re.sub(
        r"^the (?=(?:netherlands|uk|us|usa|states|philippines)\b)", "", cut(text, strict=True)
    )
    words = words.split(",")[0]
    few = words.split()
    fits = 0 < len(few) <= 2 and not _NOT_PLACES.intersection(word.casefold() for word in few)
    return [words] if fits and is_object(words) and words.islower() else []


_TOWN_CALLED = re.compile(
    r"^(?:a|the) (?:[a-z]+ ){0,2}(?:village|town|city|place|suburb|island) (?:called|named)"
    r" (?=[A-Z])"
)
_VILLAGE = re.compile(
    r"(?:a|the) (?:[a-z]+ ){0,2}(?:village|town|city|suburbs?|countryside|farm|island|cabin)"
    r" (?:near|outside|in|of|by) [A-Z]\w+(?= |$|,)(?! (?:called|named))"
)
_IS_TIME = re.compile(r"^(?:19|20)\d\d\b")


def read_named_place(text: str, vocabulary: Vocabulary) -> list[Object]:
    """Return a place whose name is in capitals."""
    name = _capitalised(re.sub(r"^(?:downtown|central|sunny) ", "", text))
    return [name.split(" and ")[0]] if name else []


def read_employer(text: str, vocabulary: Vocabulary) -> list[Object]:
    """Return where somebody works: a name in capitals, or ``bakery`` of ``a bakery``."""
    text = re.sub(
        rf"^(?:both|my own|{_CALLED_SO}) ",
        "",
        text,
    )
    if _NO_EMPLOYER.match(text):
        return []
    name = _capitalised(text.split(", ")[0])
    if name:
        return [_with_kind(name, text)]
    found = read_noun(text, vocabulary)
    has_article = re.match(r"(?:a|an|the|our|my)\s", text, re.IGNORECASE) is not None
    return found if has_article or (found and len(str(found[0]).split()) == 1) else []


def read_named_employer(text: str, vocabulary: Vocabulary) -> list[Object]:
    """Return an employer whose name is in capitals."""
    text = re.sub(rf"^(?:{_CALLED_SO}) ", "", text)
    name = _capitalised(text.split(", ")[0])
    return [_with_kind(name, text)] if name and not _NO_EMPLOYER.match(text) else []


_CALLED_SO = (
    r"(?:an? |this |my |the )(?:[a-z-]+ )?(?:company|firm|startup|start-up|place|school|hospital"
    r"|shop|bank|store|restaurant|business|agency|studio|clinic|bakery|cafe) (?:called|named)"
)
_NO_EMPLOYER = re.compile(
    r"(?:(?:the |a |an |my |our |all |most |some |\d+ ?)*(?:nights?|home|days?|weekends?|mornings?"
    r"|evenings?|afternoons?|moment|minute|distance|pace|least|last|hours?|dawn|desk|height|once"
    r"|times?|living|fun|free|money|pay|peanuts|cash|myself|christmas|easter|noon|midnight|odd"
    r"|years?|months?|weeks?|while|long|now|heart|sea|(?:mon|tues|wednes|thurs|fri|satur|sun)days?"
    r"|(?:kitchen|dining) table|house|dad|mum|mom|father|mother|uncle|aunt|wife|husband|brother"
    r"|sister"
    r"|parents|family|friend|people|clients|customers)|\d+(?:[:.]\d+)?(?:"
    r" ?[ap]\.?m\b)?(?![\w-]))(?: (?:and|or|&"
    r"|a|per|every|time|in"
    r"|on|with|as|most|too"
    r"|for|since|these|of|long|now)\b.*)?$",
    re.IGNORECASE,
)
"""``at night`` and ``for a living`` name no employer."""


def _with_kind(name: str, text: str) -> str:
    """Return a name with the noun that follows in small letters, as in ``St. Mary's hospital``."""
    found = _KIND.match(text[text.find(name) + len(name) :])
    return f"{name}{found[0]}" if found else name


_KIND = re.compile(
    r" (?:(?:high|primary|secondary|middle|elementary|general|children's|public) )?(?:hospital"
    r"|school"
    r"|college|university|clinic|church|library|bank|bakery|museum)\b"
)


def read_names(text: str, vocabulary: Vocabulary) -> list[Object]:
    """Return names of people or animals: each one or two words in capitals."""
    return [*names_in(text, vocabulary, _LISTS_WITHOUT_NAMES)]


def names_in(text: str, vocabulary: Vocabulary, without: Sequence[str]) -> list[str]:
    """Return names of people or animals at the start of a text.

    Args:
        without: The lists of the vocabulary whose words are no names here.
    """
    found: list[str] = []
    for entry in _parts(cut(text)):
        if entry.isdigit():  # the age of the one before
            continue
        match = _NAME.match(entry)
        if match is None or _not_name(match[0], vocabulary, without):
            break
        found.append(match[0].removesuffix("'s"))
    return found


_NAME = re.compile(r"[^\W\d_a-z][\w'\u2019-]*(?: [^\W\d_a-z][\w'\u2019-]*)?(?![\w])")
_NOT_NAMES = word_set(
    "I The A An My Our We He She They It You This That Yes No Hi Hello Hey Thanks Sorry Ok "
    "Okay Lol Well So And But Not Good Great Nice Just Also Then Now Maybe Sure God Lord Mr "
    "Mrs Dr Happy Team ASAP Later Back"
)


_LISTS_WITHOUT_NAMES = ("nationalities", "religions", "languages", "traits", "diets", "jobs")


def _not_name(name: str, vocabulary: Vocabulary, without: Sequence[str]) -> bool:
    word = name.split()[0]
    return (
        word in _NOT_NAMES
        or word.casefold() in _CALENDAR_NAMES
        or any(vocabulary.holds(each, name) for each in without)
    )


def read_job(text: str, vocabulary: Vocabulary) -> list[Object]:
    """Return a job; its last word, or the last one before ``of``, is a known job."""
    words = plain(
        cut(re.sub(r"^(?:self-employed|freelance) (?=\w)", "", text), strict=True).split(",")[0]
    )
    words = _JOINED.split(words)[0]
    if len(words.split()) > _MOST_WORDS:
        words = words.split(" of ")[0]
    head = words.split(" of ")[0].split()
    if not head or not is_object(words) or len(words.split()) > _MOST_WORDS:
        return []
    return [words] if _is_job(head, vocabulary) and not _NO_JOB.search(words) else []


_JOINED = re.compile(r"\s+(?:and|or|&)\s+(?=(?:a|an|my|the|in|very|love|have|am)\b)")
_NO_JOB = re.compile(
    r"\b(?:dog|cat|pet|home|house|car) owner\b|^(?:proud|happy|good|great|bad|big|terrible|huge"
    r"|lucky|amazing|horrible|fast|slow|heavy|light"
    r"|natural|born|decent|better|happy)\b",
    re.IGNORECASE,
)
_OF_JOBS = ("ologist", "ician", "iatrist", "ographer", "smith", "keeper", "wright")


def _is_job(head: list[str], vocabulary: Vocabulary) -> bool:
    word = head[-1].casefold()
    if word in ("head", "lead", "senior", "junior", "partner", "model", "owner", "guide", "maker"):
        return len(head) > 1 or word in ("head", "model")
    return vocabulary.holds("jobs", word) or word.endswith(_OF_JOBS)


def _of_list(name: str, *, whole: bool = False) -> Callable[[str, Vocabulary], list[Object]]:
    """Return a reader of objects that are in a list of the vocabulary, from their last word.

    Args:
        name: The list.
        whole: Whether the words before are part of the object.
    """

    def read(text: str, vocabulary: Vocabulary) -> list[Object]:
        found: list[Object] = []
        for entry in _parts(cut(text, strict=True)):
            words = plain(entry)
            whole_entry = _ARTICLE.sub("", entry)
            if vocabulary.holds(name, whole_entry):
                words = whole_entry
            if not (match := _in_list(name, words, vocabulary)):
                break
            one = singular(match)
            found.append(words if whole else one if name == "diets" else match)
        return found

    return read


_ARTICLE = re.compile(r"^(?:a|an|the|my|\d+ ?mg(?: of)?|some)\s+", re.IGNORECASE)


def _in_list(name: str, words: str, vocabulary: Vocabulary) -> str:
    """Return words that end in a word of a list, the shortest first; empty when none does."""
    parts = words.split()
    for size in (3, 2, 1):
        tail = " ".join(parts[-size:])
        if len(parts) >= size and vocabulary.holds(name, tail):
            return tail
    return ""


def read_pet(text: str, vocabulary: Vocabulary) -> list[Object]:
    """Return kinds of animals such as ``dog``, each in the singular."""
    found: list[Object] = []
    text = _CALLED.sub("", cut(text))
    for entry in _parts(text):
        words = _NUMBER.sub("", plain(cut(entry, strict=True)))
        animal = animal_of(words, vocabulary)
        if not animal:
            break
        found.append(animal)
    return found


_CALLED = re.compile(r",? (?:named|called) [A-Z][\w'-]*(?:(?: and|,) [A-Z][\w'-]*)?")
_NUMBER = re.compile(
    r"^(?:(?:one|two|three|four|five|six|\d{1,2}|several|many|(?:little|small|big|old|young"
    r"|rescue|lovely|cute"
    r"|beautiful|adorable|tiny|black|white|brown|grey|gray|orange|ginger|baby|pet|senior"
    r"|fluffy|first|second|third)) )+",
    re.IGNORECASE,
)


def animal_of(words: str, vocabulary: Vocabulary) -> str:
    """Return the kind of animal that a noun phrase ends with; empty when it names none."""
    parts = words.casefold().split()
    if len(parts) > 4 or (len(parts) > 1 and parts[0] in ("hot", "stuffed", "toy")):
        return ""
    for size in (2, 1):
        kind = vocabulary.named(" ".join(parts[-size:]))
        kind = (
            vocabulary.named(singular(kind))
            if kind not in vocabulary.words.get("animals", ())
            else kind
        )
        if len(parts) >= size and kind in vocabulary.words.get("animals", frozenset()):
            return kind
    return ""


def read_health(text: str, vocabulary: Vocabulary) -> list[Object]:
    """Return what somebody suffers from, as the list of the vocabulary knows it.

    ``diabetic`` is ``diabetes``, so that "I don't have diabetes any more" takes it back.
    """
    found: list[Object] = []
    text = _PATIENT.sub(lambda match: _CONDITIONS[match[0].casefold()], text)
    for entry in _parts(cut(text, strict=True)):
        words = plain(entry)
        whole = entry.strip().casefold()
        if vocabulary.holds("health", whole):
            found.append(plain(whole) if whole.startswith(("a ", "an ")) else whole)
        elif _in_list("health", words, vocabulary):
            found.append(_in_list("health", words, vocabulary))
        else:
            break
    return found


_CONDITIONS = {
    "anaemic": "anaemia",
    "anemic": "anemia",
    "asthmatic": "asthma",
    "autistic": "autism",
    "celiac": "celiac disease",
    "coeliac": "coeliac disease",
    "diabetic": "diabetes",
    "dyslexic": "dyslexia",
    "epileptic": "epilepsy",
    "migraine": "migraines",
}
_PATIENT = re.compile(rf"\b(?:{'|'.join(_CONDITIONS)})\b(?! disease)", re.IGNORECASE)


def read_count(text: str, vocabulary: Vocabulary) -> list[Object]:
    """Return a number from 1 to 20."""
    number = read_number(text.strip())
    return [number] if isinstance(number, int) and 0 < number <= 20 else []


def read_age(text: str, vocabulary: Vocabulary) -> list[Object]:
    """Return an age in years, 1 to 120."""
    number = read_number(text.strip())
    return [number] if isinstance(number, int) and 0 < number <= 120 else []


def read_year(text: str, vocabulary: Vocabulary) -> list[Object]:
    """Return a year of a birth."""
    return [int(text)]


def read_day(text: str, vocabulary: Vocabulary) -> list[Object]:
    """Return a day such as ``March 3rd``, as it is written."""
    words = re.sub(r"^(?:on )?(?:the )?", "", text.strip(), flags=re.IGNORECASE)
    match = _DAY.match(words)
    return [match[0]] if match else []


_DAY = re.compile(
    r"(?:\d{1,2}(?:st|nd|rd|th)?(?: of)? )?(?:jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov"
    r"|dec)[a-z]*"
    r"(?:\.? (?:the )?\d{1,2}(?:st|nd|rd|th)?)?(?:,? (?:19|20)\d\d)?(?!\w)",
    re.IGNORECASE,
)


def read_activity(text: str, vocabulary: Vocabulary) -> list[Object]:
    """Return what somebody does, such as ``running`` for ``run``; only the first of a list."""
    entries: list[Object] = []
    for entry in listed(cut(text)):
        words = plain(entry)
        first, _, rest = words.partition(" ")
        if not first.isalpha() or first.casefold() in _NO_ACTIVITY:
            break
        done = f"{gerund(first.casefold())} {rest}".strip()
        if not is_object(rest or done):
            break
        entries.append(done)
    return entries


_NO_ACTIVITY = word_set(
    "be have see get know say think hear go know meet believe come it do make play watch use "
    "try ask keep call talk chat"
)


def gerund(verb: str) -> str:
    """Return the form of a verb that ends in ``ing``."""
    if verb.endswith("ing") and len(verb) > 5:
        return verb
    if verb.endswith("ie"):
        return f"{verb[:-2]}ying"
    if verb.endswith("e") and not verb.endswith(("ee", "oe", "ye")):
        return f"{verb[:-1]}ing"
    is_short = re.fullmatch(r"[^aeiou]*[aeiou][bdgklmnprt]", verb)
    return f"{verb}{verb[-1]}ing" if is_short else f"{verb}ing"


def read_title(text: str, vocabulary: Vocabulary) -> list[Object]:
    """Return the title of a book, a film or a series: words in capitals."""
    found = _TITLE.match(text)
    title = found[0].strip(" .,'-") if found else ""
    title = cut(title) if title else ""
    return [title] if title and title.split()[0] not in ("I", "A") and is_title(title) else []


_TITLE = re.compile(
    r"[^\W_a-z][\w'\u2019:&-]*(?: (?:[^\W_a-z][\w'\u2019:&-]*|(?:of|the|and|in|on|a|an|to|for"
    r"|with)(?= [^\W_a-z]|  ?(?:the|a|an|of) )))*"
)


def is_title(words: str) -> bool:
    """Return whether words are no greeting, no day and no month."""
    return words.casefold() not in _CALENDAR_NAMES and words not in _NOT_NAMES


def read_pronouns(text: str, vocabulary: Vocabulary) -> list[Object]:
    """Return pronouns such as ``they/them``."""
    match = re.match(r"(?:she|he|they|xe|ze)(?:/\w{2,6}){1,2}", text, re.IGNORECASE)
    return [match[0]] if match else []


def read_subject(text: str, vocabulary: Vocabulary) -> list[Object]:
    """Return a subject of studies that the list of the vocabulary holds."""
    words = cut(text, strict=True)
    return [words] if vocabulary.holds("subjects", words) else []


def read_team(text: str, vocabulary: Vocabulary) -> list[Object]:
    """Return a team or an artist whose name is in capitals."""
    name = _capitalised(text)
    return [name] if name else []


READERS: Mapping[str, Callable[[str, Vocabulary], list[Object]]] = {
    "activity": read_activity,
    "age": read_age,
    "count": read_count,
    "day": read_day,
    "diet": _of_list("diets"),
    "drink": _of_list("drinks", whole=True),
    "employer": read_employer,
    "favourites": read_favourites,
    "field": _of_list("fields", whole=True),
    "food": _of_list("foods", whole=True),
    "health": read_health,
    "job": read_job,
    "language": _of_list("languages"),
    "medication": _of_list("medication"),
    "named_employer": read_named_employer,
    "named_place": read_named_place,
    "names": read_names,
    "nationality": _of_list("nationalities"),
    "noun": read_noun,
    "nouns": read_nouns,
    "owned": _of_list("things", whole=True),
    "pet": read_pet,
    "phrase": read_phrase,
    "pronouns": read_pronouns,
    "place": read_place,
    "plays": _of_list("plays"),
    "religion": _of_list("religions"),
    "subject_of_study": read_subject,
    "team": read_team,
    "things": read_things,
    "title": read_title,
    "trait": _of_list("traits"),
    "year": read_year,
}
"""The readers of objects by their name in `statements_in_english`."""
