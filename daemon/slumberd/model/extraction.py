"""What an extractor reads and returns: turns of a conversation, and triples found in them."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, Protocol

import orjson

from slumberd.model.episode import PERSON, EpisodeVersion
from slumberd.model.texts import without_recalled

MAX_EXTRACTED = 50
"""An extractor returns at most this many triples of one turn."""

Intent = Literal["add", "delete"]
"""Whether a turn states a triple or takes it back."""


class Turn(NamedTuple):
    """What one speaker said at one time.

    Attributes:
        id: The id of the episode.
        session: The session of the episode.
        speaker: Who spoke; empty when nobody is known to have spoken.
        content: The text.
        at: Microseconds since 1970, UTC.
        user: The user of the episode.
        agent: The agent of the episode.
        is_person: Whether the speaker is the person: extractors call the person by the user's name.
        source_node: The node or interface that wrote the episode.
        own_last: What the speaker said last before in the session. Only for an `Extraction` with
            `reads_own`; in no key of a recorded answer.
    """

    id: str
    session: str
    speaker: str
    content: str
    at: int
    user: str = ""
    agent: str = ""
    is_person: bool = False
    source_node: str = ""
    own_last: Turn | None = None


def turn_of(version: EpisodeVersion, person: Collection[str] = PERSON) -> Turn:
    """Return what an extractor reads of a version of an episode: nothing that was recalled.

    Args:
        person: The speakers whose words are those of the user.
    """
    content, speaker = without_recalled(version.content), version.speaker
    return Turn(
        version.id, version.session, speaker or "", content, version.at,
        version.user, version.agent, speaker in person, version.source_node,
    )  # fmt: skip


class Extracted(NamedTuple):
    """One triple that a turn states or takes back.

    Attributes:
        subject: What the triple is about.
        predicate: The property or relation.
        object: The value, any JSON. None in a delete takes back all objects of the predicate.
        intent: ``add`` or ``delete``.
        span: Where the text stands in the turn's content: start and end, in characters.
        by: The id of the pattern that found it, such as ``conversation/moved``. When a function of
            a rule leaves it empty, it becomes the name of the function.
        confidence: 0 to 1.
        object_words: Of a delete without an object: it takes back the objects that hold all these
            words.
        replaces: Of a delete without an object: the ids of the episodes whose claims it takes back.
    """

    subject: str
    predicate: str
    object: Any
    intent: Intent
    span: tuple[int, int]
    by: str = ""
    confidence: float = 1.0
    object_words: tuple[str, ...] = ()
    replaces: tuple[str, ...] = ()


class Failed(NamedTuple):
    """What an extractor returns for a turn that it cannot read.

    Attributes:
        reason: Why, for a person.
    """

    reason: str


class Extractor(Protocol):
    """Finds triples in turns.

    The triples of a turn depend only on the turn and on its entry in `before`. So the result is the
    same for every division of the turns into calls.
    """

    def extract(
        self, turns: Sequence[Turn], before: Sequence[Turn | None]
    ) -> Sequence[Sequence[Extracted] | Failed]:
        """Return the triples of each turn, in the order of `turns`. No text raises.

        For a turn that the extractor cannot read, return why. It has no effect on other turns.

        The triples of one turn are in the order of its text. No triple of a turn occurs twice with
        the same intent. After `MAX_EXTRACTED` triples the rest of the turn is left out.

        Args:
            turns: The turns, in any order.
            before: For each turn the last earlier turn of another speaker in the same session, as
                `previous_turns` finds it; None when there is none.

        Raises:
            ValueError: The two sequences differ in length.
        """
        ...


@dataclass(frozen=True, slots=True)
class ModelSettings:
    """What a language model is asked about turns, and which of its triples count.

    The model is asked before a firing. A firing reads the recorded answers only.

    Attributes:
        model: The name of the model, as its server knows it.
        predicates: The only predicates that count, in the order of the prompt.
        instructions: More sentences for the prompt; may be empty.
        speakers: The name of each speaker, by the speaker of a turn. Others keep theirs.
        may_retract: Whether a triple with the intent ``delete`` counts. Then the requests show
            current facts, and the model may name those that are no longer true.
        min_length: A turn of fewer characters states nothing, and is not sent.
        turns_per_call: At most so many turns of one session are in one request.
        parameters: Further keys of the request, such as ``temperature``.
    """

    model: str
    predicates: tuple[str, ...]
    instructions: str = ""
    speakers: Mapping[str, str] = field(default_factory=dict)
    may_retract: bool = False
    min_length: int = 3
    turns_per_call: int = 8
    parameters: Mapping[str, Any] = field(default_factory=dict)


AnswerStatus = Literal["ok", "refused", "invalid"]
"""Whether an answer about a turn can be read, the model refused one, or it stayed invalid."""


class RecordedAnswer(NamedTuple):
    """What a language model answered about one turn.

    Attributes:
        key: The question; see `answer_key`.
        episode_id: The episode of the turn.
        status: Whether the answer can be read.
        triples: The triples that count; empty unless `status` is ``ok``.
        dropped: How many triples do not count: their predicate is not in the list, or their words
            are not in the turn.
        problem: Why the answer is ``invalid`` or ``refused``; else empty.
        answer: The answer of the model, as text; empty when it is ``ok``.
        attempts: How often the model was asked.
        at: When it was recorded, microseconds since 1970 UTC.
    """

    key: str
    episode_id: str
    model: str
    status: AnswerStatus
    triples: Sequence[Extracted] = ()
    dropped: int = 0
    problem: str = ""
    answer: str = ""
    attempts: int = 1
    at: int = 0


class ShownFact(NamedTuple):
    """A current fact that a request shows to a language model.

    Attributes:
        name: The name by which a claim takes the fact back.
        subject: What it is about.
        predicate: The property or relation.
        object: The value, any JSON.
        at: When it was said, microseconds since 1970 UTC.
        sources: The ids of the episodes that it comes from.
    """

    name: str
    subject: str
    predicate: str
    object: Any
    at: int
    sources: tuple[str, ...]


class Stated(NamedTuple):
    """What a turn asserts.

    Attributes:
        user: The user of the episode.
        agent: The agent of the episode.
        fact: The fact that a firing may make of it.
    """

    user: str
    agent: str
    fact: ShownFact


class SentRequest(NamedTuple):
    """A request that a language model answered.

    Attributes:
        text: All that was sent, as JSON.
        scope_key: The scope of its turns.
        shown: The ids of other episodes than the asked ones whose words it holds.
        known: The ids of the episodes that its facts come from.
    """

    text: str
    scope_key: str
    shown: tuple[str, ...] = ()
    known: tuple[str, ...] = ()


class ModelUsage(NamedTuple):
    """What calls of language models cost.

    Attributes:
        calls: The requests, failed ones included.
        tokens_in: The tokens of the requests.
        tokens_out: The tokens of the answers.
        cost_micros: The price, in millionths of the currency of the configured prices.
    """

    calls: int = 0
    tokens_in: int = 0
    tokens_out: int = 0
    cost_micros: int = 0


@dataclass(frozen=True, slots=True)
class ModelSummariser:
    """What a language model is asked for the summaries of a rule.

    The model is asked between two firings. A firing reads the recorded summaries only.

    Attributes:
        digest: Changes with everything that is asked, besides the texts.
        model: The name of the model, as its server knows it.
        instructions: More sentences for the prompt; may be empty.
        parameters: Further keys of the request, such as ``temperature``.
    """

    digest: str
    model: str
    instructions: str = ""
    parameters: Mapping[str, Any] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The method, as rule files name it."""
        return "openai"


class SummaryQuestion(NamedTuple):
    """Turns of which a language model is to write a summary.

    Attributes:
        key: Of the recorded summary.
        turns: Of one user, agent and session, oldest first; at least one.
        max_tokens: The most tokens of the summary.
    """

    key: str
    turns: tuple[Turn, ...]
    max_tokens: int


class RecordedSummary(NamedTuple):
    """What a language model wrote about several turns.

    Attributes:
        key: The question; see `summary_key`.
        episode_id: The episode of the first turn.
        status: Whether there is a summary.
        text: The summary; empty unless `status` is ``ok``.
        problem: Why there is none; else empty. It holds none of the texts.
        attempts: How often the model was asked.
        at: When it was recorded, microseconds since 1970 UTC.
    """

    key: str
    episode_id: str
    model: str
    status: AnswerStatus
    text: str = ""
    problem: str = ""
    attempts: int = 1
    at: int = 0


class Question(NamedTuple):
    """A turn about which a language model is asked.

    Attributes:
        key: Of the recorded answer.
        before: The turn before it, as an `Extractor` gets it.
    """

    key: str
    turn: Turn
    before: Turn | None


class Questions(NamedTuple):
    """What a language model is to be asked about a window of the log.

    Attributes:
        questions: In log order; those with recorded answers are left out.
        upto: The number of the window's last log row; that of the row before it without rows.
        stated: What the readable turns of the window assert, as facts that a firing may make.
    """

    questions: list[Question]
    upto: int
    stated: Sequence[Stated] = ()


class Several(NamedTuple):
    """The extractions of a list.

    Attributes:
        parts: The extractions, in order; one of them at most asks a language model.
        unites: Whether the triples of all count. If not, those of the first that finds any.
    """

    parts: tuple[Extraction, ...]
    unites: bool = False


@dataclass(frozen=True, slots=True)
class Extraction:
    """How a rule finds triples in the text of episodes that state none themselves.

    Attributes:
        name: The method, as rule files name it: ``patterns``, ``conversation``, ``openai``, or a
            function such as ``python:package.module:function``; of a list, the names of all.
        digest: Changes with everything that the triples depend on, besides the text.
        extractor: Finds the triples; or what a language model is asked for them; or several
            extractions.
        reads_previous: Whether the extractor needs the turns before.
        single_valued: The predicates that hold one object, as the extractor states them.
        multi_valued: The predicates that may hold several objects at once.
        reads_own: Whether the extractor needs the speaker's own last turn.
        digest_of_0_2_0: The digest that slumberd 0.2.0 gave to what a language model is asked.
    """

    name: str
    digest: str
    extractor: Extractor | ModelSettings | Several = field(compare=False, repr=False)
    reads_previous: bool = False
    single_valued: frozenset[str] = frozenset()
    multi_valued: frozenset[str] = frozenset()
    reads_own: bool = False
    digest_of_0_2_0: str = field(default="", compare=False)

    @property
    def parts(self) -> tuple[Extraction, ...]:
        """The extractions of a list, in order; else the extraction itself."""
        return self.extractor.parts if isinstance(self.extractor, Several) else (self,)

    @property
    def named_predicates(self) -> frozenset[str]:
        """The predicates that it names with their number of values."""
        return self.single_valued | self.multi_valued

    @property
    def asked(self) -> tuple[str, ModelSettings] | None:
        """The digest and the question of the language model; None when it asks none."""
        for part in self.parts:
            if isinstance(part.extractor, ModelSettings):
                return part.digest, part.extractor
        return None

    @property
    def asks_model(self) -> bool:
        """Whether a language model finds triples, before a firing."""
        return self.asked is not None


def answer_key(digest: str, turn: Turn, before: Turn | None) -> str:
    """Return the key of a recorded answer: a hash of the question, 64 hex digits.

    Args:
        digest: Of the extraction.
        before: The turn before it.
    """
    context = None if before is None else [*map(ascii, (*_spoken(before), before.content))]
    # A surrogate of a damaged text is written as an escape, which no valid text contains.
    question = orjson.dumps([digest, _KEYS_NAME_SPEAKERS, _asked(turn), context])
    return hashlib.sha256(question).hexdigest()


def summary_key(digest: str, turns: Sequence[Turn], max_tokens: int) -> str:
    """Return the key of a recorded summary: a hash of the question, 64 hex digits.

    Args:
        digest: Of the summariser.
        turns: The turns, oldest first.
        max_tokens: The most tokens of the summary.
    """
    question = [digest, _KEYS_NAME_SPEAKERS, max_tokens, [*map(_asked, turns)]]
    return hashlib.sha256(orjson.dumps(question)).hexdigest()


_KEYS_NAME_SPEAKERS = "speaker"
"""Tells the keys of questions that name the speaker from those of slumberd 0.2.0."""


_ASKED_FIELDS = Turn._fields.index("own_last")
"""The fields of a turn that a question depends on come before this one."""


def _asked(turn: Turn) -> list[str]:
    return [*map(ascii, turn[:_ASKED_FIELDS])]


def _spoken(turn: Turn) -> tuple[str, bool, str]:
    return turn.speaker, turn.is_person, turn.source_node


def answer_key_by_node(digest: str, turn: Turn, before: Turn | None) -> str:
    """Return the key that slumberd 0.2.0 gave to an answer: there the ``source_node`` spoke.

    Args:
        digest: Of the extraction.
        before: The last earlier turn of another ``source_node``.
    """
    context = None if before is None else (before.source_node, before.content)
    question = orjson.dumps([digest, _asked_of_node(turn), ascii(context)])
    return hashlib.sha256(question).hexdigest()


def summary_key_by_node(digest: str, turns: Sequence[Turn], max_tokens: int) -> str:
    """Return the key that slumberd 0.2.0 gave to a summary; the arguments are of `summary_key`."""
    texts = [*map(_asked_of_node, turns)]
    return hashlib.sha256(orjson.dumps([digest, max_tokens, texts])).hexdigest()


def _asked_of_node(turn: Turn) -> list[str]:
    said = (turn.id, turn.session, turn.source_node, turn.content, turn.at, turn.user, turn.agent)
    return [*map(ascii, said)]
