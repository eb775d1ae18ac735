"""The changes that the forms of all pages ask for."""

from __future__ import annotations

from collections.abc import Mapping

from slumberd.console.changes import Change, back_to, submit_change
from slumberd.console.links import Fields, link
from slumberd.console.visit import Shown, Visit
from slumberd.operations.handlers import Answer


def _firings_of(_: Fields, answer: Answer) -> str:
    """Return the page of the run that an answer tells of; else the page of all firings."""
    return link("firings", run=answer.get("run"))


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
}
"""All changes, by the name that a form sends."""


async def submit(visit: Visit) -> Shown:
    """Answer a form with a change."""
    return await submit_change(visit, CHANGES)
