"""How both stores keep triples, and which they take."""

from __future__ import annotations

from slumberd.model.graph import Triple, confidence_in, is_storable, triple_id

NODE = "Entity"
"""The label of every node; its ``name`` is unique."""

EDGE = "Fact"
"""The kind of every edge; it has ``id``, ``predicate`` and ``confidence``."""


def checked_triple(
    subject: str,
    predicate: str,
    object: str,  # noqa: A002 # the specification's word
    confidence: float,
    id: str | None,
) -> Triple:
    """Return a triple that can be kept.

    Raises:
        ValueError: A part is empty or no valid text, or the confidence lies outside 0..1.
    """
    own = triple_id(subject, predicate, object) if id is None else id
    named = {"subject": subject, "predicate": predicate, "object": object, "id": own}
    for name, part in named.items():
        if not part.strip() or not is_storable(part):
            raise ValueError(f"{name} is {part!r}; a text that is not empty is needed")
    try:
        return Triple(own, subject, predicate, object, confidence_in(confidence))
    except ValueError as error:
        raise ValueError(f"confidence {error}") from None
