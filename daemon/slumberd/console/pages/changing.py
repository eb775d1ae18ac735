"""The changes that the forms of all pages ask for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from slumberd.console.changes import Change, back_to, submit_change
from slumberd.console.links import Fields, link
from slumberd.console.typed_values import read_value
from slumberd.console.visit import Shown, Visit
from slumberd.operations.handlers import Answer


def _firings_of(_: Fields, answer: Answer) -> str:
    """Return the page of the run that an answer tells of; else the page of all firings."""
    return link("firings", run=answer.get("run"))


_CORRECTED = ("user", "agent", "fact", "object", "if_version")
_RETRACTED = ("user", "agent", "fact", "if_version")


def _fact_page(fields: Fields, *_: Answer) -> str:
    """Return the page of the fact that a form changes."""
    return link("fact", id=fields["fact"], user=fields.get("user"), agent=fields.get("agent"))


def _read_correction(fields: Fields) -> dict[str, Any]:
    """Return the fields of a correction; a person writes its value as JSON, or as a text."""
    return {**fields, "object": read_value(fields.get("object", ""))}


CHANGES: Mapping[str, Change] = {
    "undo": Change(
        operation="undo",
        title="Undo a firing",
        button="Undo the firing",
        takes=("firing",),
        sentence=lambda fields: f"You ask to undo the firing {fields['firing']}.",
        back=lambda fields: link("firing", id=fields["firing"]),
        done=_firings_of,
    ),
    "fire": Change(
        operation="fire",
        title="Fire a rule",
        button="Fire the rule",
        takes=("rule",),
        read=lambda fields: {"rules": [fields["rule"]]},
        sentence=lambda fields: f"You ask to fire the rule {fields['rule']} now.",
        back=back_to("rule", "rule"),
        done=_firings_of,
    ),
    "correct": Change(
        operation="correct",
        title="Correct a fact",
        button="Correct the fact",
        takes=_CORRECTED,
        read=_read_correction,
        sentence=lambda fields: (
            f"You ask to set the value of the fact {fields['fact']} to {fields.get('object', '')}."
        ),
        back=_fact_page,
        done=_fact_page,
    ),
    "retract": Change(
        operation="correct",
        title="Retract a fact",
        button="Retract the fact",
        takes=_RETRACTED,
        fixed={"retract": True},
        sentence=lambda fields: f"You ask to retract the fact {fields['fact']}.",
        back=_fact_page,
        done=_fact_page,
    ),
}
"""All changes, by the name that a form sends."""


async def submit(visit: Visit) -> Shown:
    """Answer a form with a change."""
    return await submit_change(visit, CHANGES)
