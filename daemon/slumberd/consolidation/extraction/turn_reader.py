"""Read one turn of plain English, clause by clause."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence

from slumberd.consolidation.extraction.clauses import FINITE, Clause, divide_into_clauses, is_stated
from slumberd.consolidation.extraction.dated_plans import cancelled_plan, habit_in, plan_in
from slumberd.consolidation.extraction.english_parser import Parsed, is_asserted, parsed_clauses
from slumberd.consolidation.extraction.objects_in_english import READERS, Object, cut
from slumberd.consolidation.extraction.objects_of_one_predicate import OWN_READERS, is_place
from slumberd.consolidation.extraction.statements_in_english import (
    ATTRIBUTES,
    INVERTED,
    Effect,
    StatementExpression,
    clause_expressions,
    expressions,
)
from slumberd.consolidation.extraction.subjects_in_english import (
    Mention,
    Said,
    Subject,
    introduced,
    kind_of_favourite,
    mentions,
    said,
    subject_of,
)
from slumberd.consolidation.extraction.turn_notes import TurnNotes
from slumberd.consolidation.extraction.vocabulary import NAME, Vocabulary, word_set
from slumberd.model.extraction import Extracted, Turn

ALL_READERS: Mapping[str, Callable[[str, Vocabulary], list[Object]]] = {**READERS, **OWN_READERS}
"""The readers of objects by their name."""

MAX_TEXT = 20_000
"""The characters of a text that are read."""

NOT_PARSED: Mapping[Clause, Parsed] = {}
"""What a turn has that no parser has read."""

_IMPLIED = frozenset({f"{NAME}/implied", f"{NAME}/named"})
"""The ids of what a possessive implies: that is so in a clause of any kind."""

_GATE = re.compile(
    r"\b(?:turned|i|im|ive|my|we|our|he|she|hes|shes|moved|adopted|quit|joined|graduated|retired|switched"
    r"|living|working|allergic|studying|based|born|cancel\w*|called off|fell through|me|us"
    r"|home|beats|favou?rites?|name|they|moved out|finished|left|ditched|dropped|transferred"
    r"|visited|booked|watching|reading|back from|died|passed away|not a|lives|works|is|has"
    r"|put down|put to sleep|crossed|called off|broke off)\b",
    re.IGNORECASE,
)


class TurnReader:
    """Reads one turn.

    Args:
        speaker: What the speaker is called.
        vocabulary: The words that are known.
        parsed: The parsed sentences of the turn, by the place and number of each.
    """

    def __init__(
        self,
        turn: Turn,
        speaker: str,
        vocabulary: Vocabulary,
        parsed: Mapping[Clause, Parsed] = NOT_PARSED,
    ) -> None:
        self._turn = turn
        self._parsed = parsed
        self._vocabulary = vocabulary
        self._notes = TurnNotes(speaker, vocabulary)
        self._last: Subject | None = None
        self._attribute_before: tuple[str, str, str] | None = None
        self._object = ""
        self._name_before = ""
        self._topic = ""
        self._role_before = ""

    def find(self) -> list[Extracted]:
        """Return the triples of the turn."""
        text = self._turn.content[:MAX_TEXT]
        if not _GATE.search(text):
            return []
        if self._turn.own_last is not None:
            self._remember_people(self._turn.own_last.content[:MAX_TEXT])
        clauses = divide_into_clauses(text)
        parsed = {sentence.sentence: (sentence, words) for sentence, words in self._parsed.items()}
        numbers = {clause.sentence for clause in clauses} | parsed.keys()
        for number in sorted(numbers):
            self._begin_sentence()
            before = [*self._notes.found]
            read = [clause for clause in clauses if clause.sentence == number]
            for clause in read:
                self._read(clause)
            if number in parsed:
                self._veto(parsed[number][1], before)
                self._read_parsed(*parsed[number], before, {clause.text for clause in read})
        known = (one for one in self._notes.found if self._vocabulary.knows(one.predicate))
        return [*known]

    def _begin_sentence(self) -> None:
        self._last = None
        self._attribute_before, self._object, self._name_before = None, "", ""
        self._role_before = ""

    def _veto(self, words: Parsed, before: Sequence[Extracted]) -> None:
        """Forget what the expressions stated of a sentence, and the parser calls supposed.

        Args:
            words: The sentence.
            before: The triples of the sentences before.
        """
        self._notes.found = [
            one
            for one in self._notes.found
            if one in before
            or one.by in _IMPLIED
            or one.object is None
            or is_asserted(words, str(one.object))
        ]

    def _read_parsed(
        self, sentence: Clause, words: Parsed, before: Sequence[Extracted], read: set[str]
    ) -> None:
        """State what the clauses of a parser say besides what the expressions found.

        Args:
            sentence: Where the sentence stands.
            before: The triples of the sentences before.
            read: The clauses that have been read.
        """
        for clause in parsed_clauses(words):
            if not clause.asserted or clause.text in read or not is_stated(clause.text):
                continue
            self._begin_sentence()
            stated = [*self._notes.found]
            known = {(one.subject, one.predicate) for one in stated if one not in before}
            triples = self._notes.triples()
            self._read(sentence._replace(text=clause.text))
            new = [one for one in self._notes.found if one not in stated]
            if any((one.subject, one.predicate) in known for one in new):
                self._notes.restore(triples)

    def _remember_people(self, text: str) -> None:
        """Remember whom the speaker's last turn named, for ``she`` and for names."""
        for clause in divide_into_clauses(text):
            for mention in mentions(clause.text, self._vocabulary):
                self._notes.remember(mention)
            subject = subject_of(clause.text, self._vocabulary)
            if subject is not None and subject.kind in ("i", "we"):
                for mention in introduced(subject.rest, self._vocabulary):
                    self._notes.remember(mention)

    def _read(self, clause: Clause) -> None:
        if (words := cancelled_plan(clause.text)) is not None:
            self._notes.retract(clause, "cancelled", self._notes.speaker, "plans", words)
            self._read_whole(clause)
            return
        if self._read_whole(clause) or self._read_favourite(clause):
            return
        if " my " in clause.text and self._inverted(clause):
            return
        subject = self._subject(clause)
        self._mention(clause, subject)
        named, self._name_before = self._name_before, _single_name(clause.text)
        if subject is None:
            self._read_without_subject(clause)
            return
        if self._role_before and subject.kind in ("i", "we"):
            self._state(clause, Subject("me", "", f"am {self._role_before}"))
        self._role_before = ""
        self._name_person(clause, subject, named)
        if subject.kind != "who":
            self._last = subject
        if subject.kind == "my" and subject.mention is None:
            self._attribute(clause, subject.rest)
        else:
            self._state(clause, subject)

    def _name_person(self, clause: Clause, subject: Subject, name: str) -> None:
        """State the name of ``he is my husband`` that stood in the clause before."""
        match = _IS_MY.match(subject.rest) if subject.kind in ("he", "she") and name else None
        for mention in mentions(match["my"], self._vocabulary) if match else ():
            self._notes.name(clause, mention._replace(names=(name,)))

    def _read_favourite(self, clause: Clause) -> bool:
        """State ``that is my favourite film`` of the title that the turn named before."""
        if (match := _THAT_IS_MY.match(clause.text)) and self._topic:
            predicate = kind_of_favourite(match["kind"])
            self._notes.add(
                clause, "that_is_favourite", self._notes.speaker, predicate, self._topic
            )
            return True
        if match := _TOPIC.search(clause.text):
            found = READERS["title"](match["o"], self._vocabulary)
            self._topic = str(found[0]) if found else ""
        return False

    def _subject(self, clause: Clause) -> Subject | None:
        """Return the subject of a clause, also behind words such as ``after a year``."""
        found = subject_of(clause.text, self._vocabulary) or self._inherited(clause)
        if found is None and (behind := _BEHIND.match(clause.text)):
            found = subject_of(clause.text[behind.end() :], self._vocabulary)
        if match := _AS_A.match(clause.text):
            role = subject_of(f"I am {match['o']}", self._vocabulary)
            if role is not None:
                self._state(clause, role)
        return found

    def _read_whole(self, clause: Clause) -> bool:
        for expression in clause_expressions():
            match = expression.when.match(clause.text)
            if match and self._apply(clause, expression, match, self._notes.speaker, Said("")):
                return True
        return False

    def _inherited(self, clause: Clause) -> Subject | None:
        """Return the subject of a clause that begins with a verb."""
        text = clause.text
        if self._last is not None and self._last.kind in ("i", "we") and _OF_ANOTHER.match(text):
            return None
        if self._last is not None and _FINITE.match(text):
            return self._last._replace(rest=text)
        if self._last is not None and _PARTICIPLE.match(text):
            return self._last._replace(rest=f"am {text}")
        if self._last is None and (match := _ELIDED.match(text)):
            if match["be"] and _GOES_ON.search(text):
                return None
            return Subject("i", "", f"am {text}" if match["be"] else text)
        return None

    def _read_without_subject(self, clause: Clause) -> None:
        """Read ``it is green`` after ``my favourite colour``; keep ``as a nurse``."""
        if match := _AS_A_ROLE.fullmatch(clause.text):
            self._role_before = match["o"]
        if self._attribute_before and (match := _IT_IS.match(clause.text)):
            self._say_attribute(clause, *self._attribute_before, said(match["rest"]))

    # People and pets

    def _mention(self, clause: Clause, subject: Subject | None) -> None:
        """State what ``my wife Ana`` and ``our dog Rex`` imply; remember who was named."""
        text = clause.text
        for mention in mentions(text, self._vocabulary):
            self._notes.remember(mention)
            if not self._notes.is_over(mention, text) and not (
                subject is not None
                and subject.mention == mention
                and _END_OF_LIFE.match(subject.rest)
            ):
                self._notes.imply(clause, mention)
                self._end_before(clause, mention, text)
        if subject is None or subject.kind not in ("i", "we") or said(subject.rest).negated:
            return
        for mention in introduced(subject.rest, self._vocabulary):
            self._notes.remember(mention)
            self._end_before(clause, mention, subject.rest)
            if mention.kind in _CLOSE:
                self._notes.imply(clause, mention)
            else:
                self._notes.name(clause, mention)

    def _end_before(self, clause: Clause, mention: Mention, text: str) -> None:
        """Take back the partner before ``my new husband``; a name replaces it anyway."""
        person = self._vocabulary.people.get(mention.kind)
        words = text[mention.start : mention.end]
        if person and person.named == "partner" and not mention.names and _NEW.search(words):
            self._notes.retract(clause, "implied", self._notes.speaker, "partner", ())

    # Statements

    def _state(self, clause: Clause, subject: Subject) -> None:
        who, words = self._notes.who(subject), said(subject.rest)
        if not who or (words.negated and _YET.search(clause.text)):
            return
        readers = (self._introduce, self._relation, self._end)
        if any(read(clause, subject, words) for read in readers):
            return
        is_speaker = who == self._notes.speaker
        known = is_speaker or subject.kind != "name" or subject.words in self._notes.told
        if known and self._state_habit(clause, who, words):
            return
        if is_speaker and self._state_plan(clause, words):
            return
        left_out = self._left_out(subject, words) | self._left_out_here(clause, words)
        for expression in expressions():
            is_asked = expression.subjects == "any" or (
                is_speaker if expression.subjects == "speaker" else known
            )
            if not is_asked or expression.id in left_out:
                continue
            match = expression.when.match(self._resolved(words.words))
            if match and self._apply(clause, expression, match, who, words):
                return

    def _introduce(self, clause: Clause, subject: Subject, words: Said) -> bool:
        """State each part of ``I'm Mira, a nurse from Leeds``; return whether there are several."""
        if subject.kind != "i" or words.negated or not words.words.startswith("am "):
            return False
        first, *further = _PARTS.split(words.words[3:])
        name = self._own_name(first)
        if name:
            self._notes.add(clause, "i_am", self._notes.speaker, "name", name)
        elif not _AGED.match(first) and not (further and READERS["job"](first, self._vocabulary)):
            return False
        for part in further if name else [first, *further]:
            aged = _AGED.match(part)
            if _NO_ORIGIN.match(part):
                continue
            for words_ in (aged["age"], f"a {aged['o']}") if aged else (part,):
                self._state(clause, Subject("me", "", f"am {words_}"))
        return True

    def _own_name(self, words: str) -> str:
        """Return the name that a speaker introduces; empty when the words are none."""
        if words == "Leo":  # without an article no sign of the zodiac
            return words
        match = _I_AM.match(words)
        names = ALL_READERS["names"](match["o"], self._vocabulary) if match else []
        parts = str(names[0]).split("-") if names else []
        is_origin = any(self._vocabulary.holds("nationalities", part) for part in parts)
        return "" if is_origin or not names or parts[0].endswith("ing") else str(names[0])

    def _state_habit(self, clause: Clause, who: str, words: Said) -> bool:
        habit = "" if words.negated else habit_in(words.words)
        if habit:
            self._notes.add(clause, "habit", who, "habit", habit)
        return bool(habit) and not habit.startswith(("play", "volunteer"))

    def _state_plan(self, clause: Clause, words: Said) -> bool:
        plan = plan_in(words.words, self._turn.at)
        if plan is None:
            return False
        if not words.negated and plan.is_kept:
            self._notes.add(clause, "plan", self._notes.speaker, "plans", plan.words)
        if words.negated and (names := _names_in(plan.words)):
            self._notes.retract(clause, "cancelled", self._notes.speaker, "plans", names)
        return words.negated or plan.is_kept or not words.words.startswith("am taking")

    def _left_out(self, subject: Subject, words: Said) -> frozenset[str]:
        """Return the expressions that do not fit: ``I`` leave a job, and ``we`` leave a town.

        Who leaves a known place, or leaves for one, moves there.
        """
        names = _LEFT_FOR.match(words.words)
        moves = names is not None and any(
            is_place(cut(name), self._vocabulary) for name in names.groups()
        )
        other = "switched_jobs" if subject.kind == "we" or moves else "left_for"
        return frozenset({other} if words.negated else {other, "drinks_nothing"})

    def _left_out_here(self, clause: Clause, words: Said) -> frozenset[str]:
        """Return the expressions that do not fit the sentence.

        ``I am at Bosch`` names an employer only when the sentence names another one, or ``now``
        follows one. ``I smoked, but I quit`` ends no job.
        """
        sentence = self._turn.content[slice(*clause.span)]
        is_new = _NOW.search(sentence) is not None
        tells_of_work = any(
            one.predicate in ("works_at", "worked_at")
            and (one.span == clause.span or (one.intent == "delete" and is_new))
            for one in self._notes.found
        )
        found = set() if tells_of_work else {"now_at"}
        if _FOUND_AGAIN.search(sentence):
            found |= {"lost_pet", "lost_named_pet"}
        tells_of_partner = any(
            one.predicate == "partner" and one.intent == "add" for one in self._notes.found
        )
        if tells_of_partner or _YEARS_AGO.search(sentence):
            found.add("remarried")
        if words.words == "quit" and _QUITS_HABIT.search(sentence):
            found.add("resigned")
        return frozenset(found)

    def _resolved(self, words: str) -> str:
        """Return words with the last object of the sentence for ``it`` at their end."""
        match = _IT.search(words)
        return f"{words[: match.start()]} {self._object}" if match and self._object else words

    def _apply(
        self,
        clause: Clause,
        expression: StatementExpression,
        match: re.Match[str],
        who: str,
        words: Said,
    ) -> bool:
        """State the effects of an expression that matches; return whether there are any."""
        first = expression.effects[0]
        if words.negated:
            return self._deny(clause, expression, match, who, words)
        if first.group and not first.retracts and _DENIED.match(match[first.group] or ""):
            return False
        if (first.reader or not first.retracts) and not self._objects(first, match):
            return False
        self._keep_object(first, match)
        before = len(self._notes.found)
        for effect in expression.effects:
            predicate = effect.predicate
            if predicate == "works_at" and words.also and not effect.retracts:
                predicate = "works_also_at"
            if effect.retracts:
                self._take(clause, expression.id, who, effect, match)
                continue
            for object_ in self._objects(effect, match):
                self._notes.add(clause, expression.id, who, predicate, object_)
        return len(self._notes.found) > before

    def _keep_object(self, effect: Effect, match: re.Match[str]) -> None:
        """Remember what ``it`` means in the rest of the sentence."""
        if effect.group and match[effect.group]:
            self._object = cut(match[effect.group])

    def _objects(self, effect: Effect, match: re.Match[str]) -> list[Object]:
        if effect.words:
            return [effect.words]
        text = match[effect.group] if effect.group else ""
        if effect.reader == "drunk" and not text:
            return ["alcohol"]
        return ALL_READERS[effect.reader](text.strip(), self._vocabulary) if text else []

    def _take(
        self, clause: Clause, id: str, who: str, effect: Effect, match: re.Match[str]
    ) -> None:
        """Take back what an effect of an expression names."""
        if effect.words:
            content = _content_words(effect.words)
            self._notes.end(clause, id, who, effect.predicate, effect.words, content)
        elif not effect.group:
            self._notes.retract(clause, id, who, effect.predicate, ())
        elif text := match[effect.group]:
            if effect.predicate == "pet":
                self._notes.lose_pet(clause, id, re.sub(r"^the ", "my ", text))
            elif effect.predicate == "pet_name":
                self._notes.end_pet(clause, id, "", (text,))
            else:
                objects = self._objects(effect, match) if effect.reader else [cut(text)]
                self._take_objects(clause, id, who, effect.predicate, objects)

    def _take_objects(
        self, clause: Clause, id: str, who: str, group: str, objects: Sequence[Object]
    ) -> None:
        for predicate in _GROUPS.get(group, (group,)):
            for object_ in objects:
                if words := _content_words(str(object_)):
                    self._notes.retract(clause, id, who, predicate, words)

    def _deny(
        self,
        clause: Clause,
        expression: StatementExpression,
        match: re.Match[str],
        who: str,
        words: Said,
    ) -> bool:
        first = expression.effects[0]
        objects = [] if first.retracts else self._objects(first, match)
        if not expression.negated or not objects:
            return False
        at_times = expression.negated != "dislikes" and _NOT_THEN.search(clause.text)
        if not words.past and (at_times or _NOT_ALWAYS.search(clause.text)):
            return True
        self._keep_object(first, match)
        for object_ in objects:
            if not expression.negated.startswith("-") and not words.past:
                self._notes.add(clause, expression.id, who, expression.negated, object_)
                continue
            self._notes.retract(
                clause, expression.id, who, first.predicate, _content_words(str(object_))
            )
            if words.ended and expression.negated.startswith("-") and expression.negated != "-":
                self._notes.add(clause, expression.id, who, expression.negated[1:], object_)
        return True

    def _relation(self, clause: Clause, subject: Subject, words: Said) -> bool:
        """State the name of a relative or pet, as in ``my sister is called Ana``."""
        mention = subject.mention
        if mention is None or mention.names:
            return False
        match = _CALLED.match(words.words) if not mention.possessive else _S_NAME.match(words.words)
        if match is None or words.negated:
            return False
        names = ALL_READERS["names"](match["o"] or match["p"], self._vocabulary)
        for name in names:
            self._notes.remember(mention._replace(names=(str(name),)))
            self._notes.name(clause, mention._replace(names=(str(name),)))
        return bool(names)

    def _end(self, clause: Clause, subject: Subject, words: Said) -> bool:
        """Take back what ends with a death or a separation; return whether the clause is read."""
        is_over = _is_end(words)
        mention = self._mentioned(subject)
        if mention is None:
            if is_over and subject.kind == "name":
                self._notes.end_pet(clause, "died", "", (subject.words,))
            return is_over and subject.kind not in ("i", "we")
        if mention.is_pet:
            if is_over:
                self._notes.end_pet(clause, "died", mention.kind, mention.names)
            return is_over
        return self._leave(clause, mention, words) or is_over

    def _mentioned(self, subject: Subject) -> Mention | None:
        """Return the person or pet that a subject means."""
        if subject.kind == "name" and subject.words in self._notes.told:
            kind, is_pet = self._notes.told[subject.words]
            return Mention(kind, (subject.words,), is_pet, 0, 0)
        if subject.kind in ("he", "she") and (who := self._notes.who(subject)):
            kind = who.removeprefix(f"{self._notes.speaker}'s ")
            named = [name for name, (told, _) in self._notes.told.items() if told == kind]
            return Mention(kind, tuple(named[-1:]), kind not in self._vocabulary.people, 0, 0)
        return subject.mention

    def _leave(self, clause: Clause, mention: Mention, words: Said) -> bool:
        """State what the end of a partnership or a flatshare changes; return whether it did."""
        if words.negated:
            return False
        if mention.kind == "roommate" and words.words.startswith(("moved out", "is moving out")):
            names = mention.names[:1]
            self._notes.retract(clause, "moved_out", self._notes.speaker, "roommate", names)
            return True
        person = self._vocabulary.people.get(mention.kind)
        status = _status_after(words.words) if person and person.named == "partner" else ""
        if status:
            self._notes.add(clause, "partner", self._notes.speaker, "marital_status", status)
            if status != "engaged":
                self._notes.retract(clause, "partner", self._notes.speaker, "partner", ())
        return bool(status)

    # Attributes: ``my favourite food is sushi``

    def _attribute(self, clause: Clause, text: str) -> None:
        for id, pattern, predicate, reader in ATTRIBUTES:
            match = pattern.match(text)
            if match is None:
                continue
            predicate = predicate or kind_of_favourite(match["kind"] or "")
            self._attribute_before = (id, predicate, reader)
            self._say_attribute(clause, id, predicate, reader, said(match["rest"]))
            return

    def _say_attribute(
        self, clause: Clause, id: str, predicate: str, reader: str, words: Said
    ) -> None:
        be = None if reader == "names" and _IS_IN.match(words.words) else _IS.match(words.words)
        objects = ALL_READERS[reader](be["o"], self._vocabulary) if be and predicate else []
        for object_ in objects:
            if words.negated:
                content = _content_words(str(object_))
                self._notes.retract(clause, id, self._notes.speaker, predicate, content)
            else:
                self._notes.add(clause, id, self._notes.speaker, predicate, object_)

    def _inverted(self, clause: Clause) -> bool:
        """State ``sushi is my favourite food`` and ``Ana is my sister``; return whether it did."""
        match = INVERTED.match(clause.text)
        if match is None:
            return False
        before = len(self._notes.found)
        if match["kind"]:
            predicate = kind_of_favourite(match["kind"])
            for object_ in READERS["favourites"](match["o"], self._vocabulary) if predicate else ():
                self._notes.add(clause, "inverted", self._notes.speaker, predicate, object_)
            return len(self._notes.found) > before
        names = tuple(map(str, ALL_READERS["names"](match["o"], self._vocabulary)))
        for mention in mentions(f"my {match['who']}", self._vocabulary):
            named = mention._replace(names=names)
            self._notes.remember(named)
            if names:
                self._notes.imply(clause, named)
        return len(self._notes.found) > before

    # Triples


_IT_IS = re.compile(r"(?:now )?(?:it|they) (?P<rest>(?:is|are) .+)", re.IGNORECASE)
_THAT_IS_MY = re.compile(
    r"(?:that|it|this) is (?:now |still )*my (?:new |all[- ]time )*favourite (?P<kind>[a-z]+)\b",
    re.IGNORECASE,
)
_TOPIC = re.compile(
    r"\b(?:saw|watched|read|tried|discovered|heard|played|finished) (?P<o>[A-Z].+)", re.IGNORECASE
)
_BEHIND = re.compile(
    r"(?:(?:after|since|from|until|during|as of|ever since)\b(?:(?! (?:that|who|what|how|if|when"
    r"|whose|you|he|she|they|would|says?|said)\b)[^,;:]){0,80}?,? "
    r"|(?:in|on|at|for|by|with|as|this|last|a|two|three|four|five|six|ten|few|\d+|today|yesterday"
    r"|tonight|then)\b(?:(?! (?:that|who|what|how|if|when|whose|you|he|she|they|would|says?|said)"
    r"\b)[^,;:]){0,80}?(?:, | later,? ))(?=(?:I|we|my|our)\b)",
    re.IGNORECASE,
)
_AS_A = re.compile(r"as (?P<o>an? [^,]{3,60}?),? (?=(?:I|we)\b)", re.IGNORECASE)
_AS_A_ROLE = re.compile(r"as (?P<o>an? [^,]{3,60})", re.IGNORECASE)
_OF_ANOTHER = re.compile(r"(?:is|has|does|(?!was\b)\w*[a-rt-z]s)\b", re.IGNORECASE)
"""Begins a clause whose subject is not "I": "I met a guy who sings and lives in Rome"."""

_FINITE = re.compile(rf"(?:{FINITE})\b", re.IGNORECASE)
_ELIDED = re.compile(
    r"(?:moved|relocated|finished|left|ditched|dropped|transferred|visited|booked|adopted|quit"
    r"|joined|graduated|retired|switched|broke up|got (?:a|married|engaged"
    r"|divorced|fired|laid|promoted|hired)|turned (?=\d)"
    r"|started (?:a|at|working|learning)|bought a|sold my)\b"
    r"|(?P<be>(?:living|working|allergic|studying|based|born) (?:in|at|as|for|to)\b|not an? "
    r"|(?:watching|reading) (?-i:[A-Z])|back from (?-i:[A-Z]))",
    re.IGNORECASE,
)
_IT = re.compile(r" (?:it|them)$")
_PARTICIPLE = re.compile(r"(?:living|working|studying|based) (?:in|at|as|for)\b", re.IGNORECASE)
_GOES_ON = re.compile(
    r" (?:is|are|was|has|have|had|not only|can|will|gives?|makes?|means|helps?|provides?"
    r"|requires?|takes)\b"
)
_I_AM = re.compile(r"(?P<o>[^\W\d_a-z][a-z\u00df-\u017f'-]+(?: [^\W\d_a-z][\w'-]+)?)$")
_PARTS = re.compile(
    r",? (?:and )?(?:currently |now |originally )?(?=(?:from|(?:living|based) in|working (?:at|for"
    r"|as)) (?:the |an? )?[A-Z]|working as an? )"
    r"|, (?:and )?(?=(?:an? (?!lot|bit|little|few|tad)|the |\d{1,2}(?: years old)?(?:$|,| )))"
)
"""Divides ``Mira, 34, a nurse from Leeds, living in York``."""
_NO_ORIGIN = re.compile(
    r"from (?:the )?(?:Sales|Marketing|Support|HR|IT|Accounting|Finance|Engineering|Legal|Customer"
    r"|Tech|Apple|Google|Microsoft|Amazon)\b"
)
_AGED = re.compile(r"an? (?P<age>\d{1,3})[- ]years?[- ]old,? (?P<o>.+)", re.IGNORECASE)
_CALLED = re.compile(
    r"(?:is|are|was)(?: called| named)? (?P<o>[^\W\d_a-z].*)|(?:is|are) (?:called|named) (?P<p>.+)"
)
_S_NAME = re.compile(r"names? (?:is|are) (?P<o>(?P<p>.+))")
_NEW = re.compile(r"\bnew\b", re.IGNORECASE)
_NOW = re.compile(r"\b(?:now|these days|currently)\b", re.IGNORECASE)
_LEFT_FOR = re.compile(r"(?:have |has )?left ([A-Z].+?) for ([A-Z].+)")
_FOUND_AGAIN = re.compile(
    r"\b(?:found (?:him|her|it|them)|(?:came|come|is|are) (?:back|home|found))\b", re.IGNORECASE
)
_YEARS_AGO = re.compile(r"\b(?:in (?:19|20)\d\d|(?:years|decades) ago)\b", re.IGNORECASE)
_QUITS_HABIT = re.compile(
    r"\b(?:vegan|vegetarian|smok\w+|drink\w*|drank|play\w*|gym|diet|lessons|classes|team|choir|band"
    r"|club|school|course|habit|piano|guitar)\b",
    re.IGNORECASE,
)
_IS_IN = re.compile(r"(?:is|are) (?:in|at|from|with) ")
_DENIED = re.compile(
    r"\s*(?:no|not|neither|nor|none|nothing|zero|barely any|hardly|scarcely"
    r"|in no way|by no means|far from|anything but)\b"
)
"""Begins an object that denies itself: "I speak no French". "No" in a title has a capital."""

_YET = re.compile(r"\byet\b")
_NOT_ALWAYS = re.compile(
    r"\b(?:always|usually|often|normally|regularly|necessarily|every \w+|all the time|only)\b",
    re.IGNORECASE,
)
"""A negation of these denies how often, and not the rest: "I don't always eat meat"."""

_MEAL = r"(?:breakfast|lunch|dinner|supper|dessert|meals?|food)"
_NOT_THEN = re.compile(
    rf"\b(?:much|a lot|more than|(?:in|during) the (?:morning|afternoon|evening|daytime|day|week"
    rf"|summer|winter|spring|autumn)s?|at (?:night|noon|work|home|school|parties|{_MEAL})"
    rf"|(?:for|with|before|after|at|during) (?:my |the )?{_MEAL}"
    r"|(?:before|after) (?:\d\w*|noon|midnight|dark|work|bed|bedtime|training|exercise)"
    r"|on (?:an empty stomach|weekdays?|weekends?|holidays?|planes?"
    r"|(?:mon|tues|wednes|thurs|fri|satur|sun)days?)"
    r"|during \w+|when|while|whenever|until|today|tonight|tomorrow|late"
    r"|this (?:week|month|morning|afternoon|evening|weekend|time))\b",
    re.IGNORECASE,
)
"""A negation with these holds at some times only: "I don't drink coffee in the evening"."""
_IS = re.compile(
    r"(?:is|are|am|includes?|has been|have been|became|has become|has changed to|changed (?:from"
    r" .+?"
    r" )?to|will be)(?:"
    r" at| in| as| with| called| named)? (?P<o>.+)"
)
_END_OF_LIFE = re.compile(
    r"(?:has |have |had to be |is |was |just |sadly )*(?:died|passed(?: away| on)?$|passed"
    r" (?:last|this|yesterday|today|in|on|at|a|two|three|peacefully|suddenly)\b|passed away"
    r"|put down|put to sleep|euthani[sz]ed|dead|ran away"
    r"|run away|crossed the rainbow|rehomed|stolen|no longer with us|gone$)",
    re.IGNORECASE,
)
_ALIVE = re.compile(
    r"(?:did|has|have) (?:make|made) it(?:$| (?:through|last|this|yesterday|today|in the end)\b)"
    r"|(?:is|are) alive\b",
    re.IGNORECASE,
)
_HERE = re.compile(r"(?:(?:is|are)|lives?) with (?:me|us)\b", re.IGNORECASE)
_DIED = re.compile(r"(?:has |is )?(?:died|passed|dead|no longer)", re.IGNORECASE)
_LEFT_ME = re.compile(
    r"(?:has |just )?(?:left|dumped|divorced|broke up with|is divorcing|ended things with)"
    r" (?:me|us)\b"
    r"|(?:and I|and me) (?:broke|split|separated|divorced)",
    re.IGNORECASE,
)


_CLOSE = frozenset({"son", "daughter"})
"""``I have a son`` implies what ``my son`` does."""


_GROUPS: Mapping[str, tuple[str, ...]] = {
    "activity": ("habit", "hobby", "plays", "learning"),
}
"""What a retraction of several predicates takes back."""

_IS_MY = re.compile(r"is (?P<my>my (?:[\w-]+ ?){1,3})$", re.IGNORECASE)


def _is_end(words: Said) -> bool:
    """Return whether words about a person or pet say that it died, or is gone."""
    if not words.negated:
        return _END_OF_LIFE.match(words.words) is not None
    is_gone = words.ended and _HERE.match(words.words)
    return bool(is_gone or _ALIVE.match(words.words))


def _status_after(words: str) -> str:
    """Return the marital status that words about a partner state; empty when they state none."""
    if _DIED.match(words):
        return "widowed"
    if words.startswith("proposed"):
        return "engaged"
    return "single" if _LEFT_ME.match(words) else ""


def _single_name(text: str) -> str:
    """Return the only word in capitals of a clause; empty when there are none or several."""
    found = set(re.findall(r"(?<!^)\b[A-Z][a-z]+\b|^[A-Z][a-z]+(?= is )", text))
    return found.pop() if len(found) == 1 else ""


_EMPTY_WORDS = word_set(
    "going doing playing having being a an the my our his her of in on at to for with and or "
    "it this that some any all more new old very just really own other things stuff"
)


def _names_in(text: str) -> tuple[str, ...]:
    """Return the words in capitals after the first word of a text."""
    return tuple(word for word in re.findall(r"[\w'-]+", text)[1:] if word[:1].isupper())[:4]


def _content_words(text: object) -> tuple[str, ...]:
    """Return the words of a text by which a retraction finds an object."""
    words = [
        word.strip("'-")
        for word in re.findall(r"[\w'-]+", str(text))
        if word.casefold() not in _EMPTY_WORDS
    ]
    return tuple(words)[:4]


_ABOUT_SOMEBODY = re.compile(r"\b(?:I|my|we|our|he|she|who)\b", re.IGNORECASE)


def is_worth_parsing(sentence: Clause) -> bool:
    """Return whether a sentence can be about the speaker, or somebody near."""
    return _ABOUT_SOMEBODY.search(sentence.text) is not None
