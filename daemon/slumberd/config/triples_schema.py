"""The schema of the answer that a host asks of a model which extracts triples."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from slumberd.config.validation import Form
from slumberd.consolidation.incoming import MOST_TRIPLES

Text = Annotated[str, Field(min_length=1)]


class TripleAnswer(Form):
    """One triple that the text states.

    Attributes:
        subject: Who or what the triple is about, by the name that the prompt gives.
        predicate: What is said of the subject; one of the predicates of the prompt.
        object: The value, in words of the text.
        confidence: How sure the text is, 0 to 1.
    """

    subject: Text
    predicate: Text
    object: Text
    confidence: float = Field(ge=0, le=1)


class TriplesAnswer(Form):
    """The answer of a model: what goes into ``metadata.triples`` of an episode.

    Attributes:
        triples: Every triple that the text states; empty when it states none.
    """

    triples: Annotated[list[TripleAnswer], Field(max_length=MOST_TRIPLES)]
