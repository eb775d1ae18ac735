"""Split texts into folded words, and recognise their languages by stop words."""

# ruff: noqa: RUF001 # Cyrillic letters look like Latin ones

from __future__ import annotations

import math
import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

from slumberd.model.texts import cut, limit_marks

_ARTICLES_AND_PREPOSITIONS = (
    "a an the of in on at by for with about from to into over after before as and or but if then "
    "than so not no nor too very just also there here any some"
)
_PRONOUNS = (
    "i you he she it we they me him her us them my your his its our their mine yours this that "
    "these those who whom whose which what when where why how"
)
_VERBS = (
    "is am are was were be been being do does did doing done have has had having can could will "
    "would shall should may might must s t d ll m re ve dont"
)

STOP_WORDS: dict[str, str] = {
    "english": f"{_ARTICLES_AND_PREPOSITIONS} {_PRONOUNS} {_VERBS}",
    "german": (
        "der die das den dem des ein eine einen einem einer eines und oder aber wenn als wie dass "
        "daß ob weil nicht kein keine keinen auch nur noch schon sehr mal ja doch so da hier dort "
        "in im an am auf aus bei beim mit nach von vom vor zu zum zur für über unter um durch "
        "ich du er sie es wir ihr mich mir dich dir ihn ihm uns euch sich mein meine meinen meiner "
        "meinem dein deine deinen sein seine seinen ihre ihren unser unsere dieser diese dieses "
        "wer wen wem was wann wo warum welche welcher welches "
        "bin bist ist sind war waren wird werden wurde habe hast hat haben hatte kann können muss "
        "will wollen soll"
    ),
    "french": (
        "le la les l un une des du de d au aux et ou mais si que qu qui quoi où quand comment "
        "pourquoi quel quelle quels quelles ne n pas plus très aussi encore déjà y en dans sur "
        "sous avec sans pour par chez vers entre comme donc car "
        "je j tu il elle on nous vous ils elles me m te t se s lui leur moi toi mon ma mes ton ta "
        "tes son sa ses notre nos votre vos leurs ce c cet cette ces cela ça "
        "suis es est sommes êtes sont était étais été être ai as a avons avez ont avait avoir fait "
        "faire peut va vais"
    ),
    "spanish": (
        "el la los las lo un una unos unas de del al y e o u pero si que qué quien quién cuando "
        "cuándo donde dónde como cómo por para con sin en sobre entre desde hasta no ni muy más "
        "también ya porque cual cuál "
        "yo tú él ella nosotros ellos ellas usted ustedes me te se nos le les mi mis tu tus su sus "
        "nuestro nuestra este esta esto estos estas ese esa eso "
        "soy eres es somos son era fue ser estoy estás está están estar he has ha hemos han había "
        "hay tengo tiene hace hacer puede voy va"
    ),
    "italian": (
        "il lo la i gli le l un uno una di del della dei delle dello degli dell a al alla ai alle "
        "allo da dal dalla in nel nella nei con su sul sulla per tra fra e ed o ma se che chi cosa "
        "quando dove come perché quale non né più molto anche già ancora c ci ne "
        "io tu lui lei noi voi loro mi ti si vi me te mio mia miei mie tuo tua suo sua suoi nostro "
        "nostra questo questa questi queste quello quella "
        "sono sei è siamo siete era erano stato stata essere ho hai ha abbiamo avete hanno aveva "
        "avere fa fare può vado va"
    ),
    "portuguese": (
        "o a os as um uma uns umas de do da dos das em no na nos nas ao à aos às por pelo pela "
        "para com sem sobre entre até e ou mas se que quem quando onde como porque qual não nem "
        "mais muito também já "
        "eu tu você ele ela nós vocês eles elas me te lhe meu minha meus minhas teu tua seu sua "
        "seus suas nosso nossa este esta isto esse essa isso aquele "
        "sou és é somos são era foi ser estou está estão estava estar tenho tem têm tinha ter há "
        "fazer pode vou vai"
    ),
    "dutch": (
        "de het een en of maar als dan dat die dit deze niet geen ook nog al wel heel zeer er hier "
        "daar in op aan bij met naar van voor uit over onder door te om tot "
        "ik jij je hij zij ze we wij jullie u mij me hem haar ons hen hun mijn jouw zijn onze zich "
        "wie wat wanneer waar waarom welke hoe "
        "ben bent is was waren word wordt werd heb hebt heeft hebben had kan kunnen moet wil zal "
        "zou ga gaat"
    ),
    "swedish": (
        "en ett den det de dem och eller men om att som så inte ingen inget också bara redan "
        "mycket här där i på av för från till med vid hos under över efter utan åt "
        "jag du han hon vi ni mig dig honom henne oss er min mitt mina din ditt dina hans hennes "
        "sin sitt sina vår vårt våra deras denna detta dessa vem vad när var varför vilken hur "
        "är vara blir blev har hade ha kan kunde ska skulle vill måste får gör"
    ),
    "danish": (
        "en et den det de dem og eller men om at som så ikke ingen intet også kun bare allerede "
        "meget her der i på af for fra til med ved hos under over efter uden "
        "jeg du han hun vi mig dig ham hende os jer min mit mine din dit dine hans hendes sin sit "
        "sine vores deres denne dette disse hvem hvad hvornår hvor hvorfor hvilken hvordan "
        "er være bliver blev har havde have kan kunne skal skulle vil må får gør"
    ),
    "norwegian": (
        "en ei et den det de dem og eller men om at som så ikke ingen ingenting også bare allerede "
        "veldig mye her der i på av for fra til med ved hos under over etter uten "
        "jeg du han hun vi dere meg deg ham henne oss min mitt mine din ditt dine hans hennes sin "
        "sitt sine vår vårt våre deres denne dette disse hvem hva når hvor hvorfor hvilken hvordan "
        "er være blir ble har hadde ha kan kunne skal skulle vil må får gjør"
    ),
    "russian": (
        "и в во не что он на я с со как а то все она так его но да ты к у же вы за бы по только "
        "ее её мне было вот от меня еще ещё нет о из ему теперь когда даже ну ли если уже или ни "
        "быть был была были него до вас нибудь вам ведь там потом себя ей они тут где есть надо "
        "для мы тебя их чем сам чтоб без чего раз тоже себе под будет кто этот того потому этого "
        "какой ним здесь этом мой моя мои моё твой наш почему при об это эта эти нас нам тебе"
    ),
}
"""The words of each language, with spaces between them."""


_WORD = re.compile(r"[^\W_]+(?:'[^\W_]+)*")
_ASCII_WORD = re.compile(r"[a-z0-9]+(?:'[a-z0-9]+)*")
"""The same in ASCII, which is found in half the time."""

_UNSPACED = re.compile(
    "([\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3005-\u3007\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff"
    "\uf900-\ufaff\U00020000-\U0003ffff]+)"
)
"""Scripts without spaces: Chinese, Japanese, Thai, Lao, Burmese, Khmer."""

_ACCENTS = dict.fromkeys(range(0x300, 0x370))
"""The accents of Latin, Greek and Cyrillic letters, once they are decomposed."""

_APOSTROPHE = "\u2019"


def words_of(text: str) -> list[str]:
    """Return the words of a text in order: without case, accents and differences of form (NFKC).

    A text without letters and digits has its signs as words, such as a picture of a thumb.
    """
    if text.isascii():
        lower = text.lower()
        return _ASCII_WORD.findall(lower) or lower.split()
    folded = fold(text).replace(_APOSTROPHE, "'")
    return _WORD.findall(folded) or folded.split()


def fold(text: str) -> str:
    """Return a text without case, accents and differences of form."""
    limited = limit_marks(text.casefold())
    decomposed = unicodedata.normalize("NFKD", limited).translate(_ACCENTS)
    folded, _ = cut(unicodedata.normalize("NFKC", decomposed), text)
    return folded


def parts_of(word: str) -> Iterator[str]:
    """Yield a word; of a script without spaces its characters, and its pairs of neighbours."""
    if word.isascii():
        yield word
        return
    for run in _UNSPACED.split(word):
        if _UNSPACED.fullmatch(run):
            yield from run
            yield from (run[start : start + 2] for start in range(len(run) - 1))
        elif run:
            yield run


UNKNOWN = "unknown"
"""The language of texts that have few stop words of each language that is known."""

DEFAULT = "english"
"""The language of a scope whose texts are too short to decide; names of predicates are English."""

_MOST_WORDS = 200
"""So many words at the beginning of a text are looked at."""

_FEWEST_STOP_WORDS = 2
_LEAST_SHARE = 0.25
"""The least stop words of a language in a text of it: their number, and their share of words."""

_UNKNOWN_SHARE = 0.2
_FEWEST_WORDS = 12
"""A text of this many words is of an unknown language when fewer than this share are stop words."""

_LEAST_PART = 1 / 8
"""The least share of texts of a second language, compared with the first one of the scope."""

_WRITTEN_AS_NAMES = frozenset({"Will", "May", "US", "IT"})
"""Within a sentence these are no stop words of English. At its beginning they may be."""

_LETTERS = re.compile(r"\w+")

_NAMES = (*STOP_WORDS,)


def stop_words_of(language: str | None) -> frozenset[str]:
    """Return the stop words of a language, folded; none when they are not known."""
    return _FOLDED.get(language, frozenset())


def is_stop_word(word: str) -> bool:
    """Return whether a folded word is a stop word of one of the known languages."""
    return word in _LANGUAGES_OF


def names_in_question(question: str) -> frozenset[str]:
    """Return the English stop words that a question writes as names, such as May, folded."""
    if question.isupper():
        return frozenset()
    others = _LETTERS.findall(question)[1:]
    return frozenset(word.lower() for word in others if word in _WRITTEN_AS_NAMES)


def _read() -> dict[str | None, frozenset[str]]:
    return {name: frozenset(map(fold, words.split())) for name, words in STOP_WORDS.items()}


_FOLDED = _read()
_LANGUAGES_OF = {
    word: tuple(number for number, name in enumerate(_NAMES) if word in _FOLDED[name])
    for words in _FOLDED.values()
    for word in words
}


def recognise(words: Sequence[str]) -> str | None:
    """Return the language of a text by its folded words alone.

    Returns:
        Its name; `UNKNOWN` for a text without stop words; None when too few words
        decide.
    """
    looked_at = words[:_MOST_WORDS]
    counts = [0] * len(_NAMES)
    for word in looked_at:
        for number in _LANGUAGES_OF.get(word, ()):
            counts[number] += 1
    most, total = max(counts), len(looked_at)
    if most >= _FEWEST_STOP_WORDS and most >= _LEAST_SHARE * total and counts.count(most) == 1:
        return _NAMES[counts.index(most)]
    if total >= _FEWEST_WORDS and most < _UNKNOWN_SHARE * total:
        return UNKNOWN
    return None


class ScopeLanguages:
    """Counts the texts of a scope by language, and chooses its languages.

    The choice depends on the set of the texts only. Counts go by powers of two, so a new text
    changes the choice seldom.

    Args:
        counts: The number of texts by language; None for no texts.
    """

    def __init__(self, counts: Mapping[str, int] | None = None) -> None:
        self._counts: Counter[str] = Counter(counts)

    def counts(self) -> dict[str, int]:
        """Return the number of texts by language."""
        return dict(self._counts)

    def add(self, language: str | None) -> None:
        """Count a text, as it was recognised."""
        if language is not None:
            self._counts[language] += 1

    def remove(self, language: str | None) -> None:
        """Count a text no more."""
        if language is not None:
            self._counts[language] -= 1

    def chosen(self) -> tuple[str, ...]:
        """Return the languages that count, the first one first.

        `UNKNOWN` is the only one, when most texts are of it.
        """
        counts = {name: 2 ** round(math.log2(n)) for name, n in self._counts.items() if n > 0}
        unknown = counts.pop(UNKNOWN, 0)
        most = max(counts.values(), default=0)
        if unknown > most:
            return (UNKNOWN,)
        chosen = [name for name in _by_count(counts) if counts[name] >= _LEAST_PART * most]
        return (*chosen,) or (DEFAULT,)


def _by_count(counts: dict[str, int]) -> Iterable[str]:
    return sorted(counts, key=lambda name: (-counts[name], _NAMES.index(name)))
