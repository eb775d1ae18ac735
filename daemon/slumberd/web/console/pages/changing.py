"""The changes that the forms of all pages ask for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from slumberd.operations.handlers import Answer
from slumberd.web.console.changes import FormChange, back_to, submit_change
from slumberd.web.console.fact_words import read_value
from slumberd.web.console.rendering import Fields, link
from slumberd.web.console.time_range import read_microseconds, read_period
from slumberd.web.console.visit import Redirect, Shown, Visit

_UNDO = "@undo@"


def _firings_of(_: Fields, answer: Answer) -> str:
    """Return the page of the run that an answer names; else the page of all firings."""
    return link("firings", run=answer.get("run"))


# Undoing


def _undo_sentence(fields: Fields) -> str:
    firing = fields["firing"]
    if _UNDO in firing:
        return f"You ask to undo the undo {firing}: what it took back takes effect again."
    return f"You ask to undo the firing {firing}: what it changed is taken back."


def _undoing_firing(_: Fields, answer: Answer) -> str:
    """Return the page of the firing that undid another; of several, the page of their run."""
    firings = answer["firing_ids"]
    if len(firings) == 1:
        return link("firing", id=firings[0])
    return link("firings", run=answer["run"])


def _read_since(fields: Fields) -> dict[str, Any]:
    """Return a rule, and an instant in microseconds."""
    return {"rule": fields["rule"], "since": read_microseconds(fields, "since")}


# Backfilling


def _read_backfill(fields: Fields) -> dict[str, Any]:
    """Return a rule, and the period when the form names one."""
    period = read_period(fields)
    return {"rule": fields["rule"], **({} if period is None else {"between": period})}


def _backfill_sentence(fields: Fields) -> str:
    begin, end = fields.get("from"), fields.get("to")
    bounds = [
        *([] if begin is None else [f"since {begin}"]),
        *([] if end is None else [f"before {end}"]),
    ]
    return (
        f"You ask to backfill the rule {fields['rule']}: its facts from episodes"
        f" {' and '.join(bounds) or 'of all times'} become those that it would promote now."
    )


# Batches that await approval


def _decided(_: Fields, answer: Answer) -> str:
    """Return the page of the run that applied a batch; else the page of approvals."""
    run = answer["run"]
    return link("approvals") if run is None else link("firings", run=run)


# Quarantine


def _read_entries(fields: Fields) -> dict[str, Any]:
    """Return the rule, and the episode when the form names one."""
    episode = fields.get("episode")
    return {"rules": [fields["rule"]], **({} if episode is None else {"episodes": [episode]})}


def _read_dropped(fields: Fields) -> dict[str, Any]:
    return {**_read_entries(fields), "all": "episode" not in fields}


def _name_entries(fields: Fields) -> str:
    rule, episode = fields["rule"], fields.get("episode")
    if episode is None:
        return f"all episodes that the rule {rule} could not read"
    return f"the episode {episode}, which the rule {rule} could not read"


def _retried(fields: Fields, answer: Answer) -> str:
    """Return the page of the run that read episodes again; else the page of the quarantine."""
    run = answer["run"]
    return link("quarantine", rule=fields["rule"]) if run is None else link("firings", run=run)


# Facts

_CORRECTED = ("user", "agent", "fact", "object", "if_version")
_RETRACTED = ("user", "agent", "fact", "if_version")


def _fact_page(fields: Fields, *_: Answer) -> str:
    """Return the page of the fact that a form changes."""
    return link("fact", id=fields["fact"], user=fields.get("user"), agent=fields.get("agent"))


def _read_correction(fields: Fields) -> dict[str, Any]:
    """Return the fields of a correction; a person writes its value as JSON, or as a text."""
    return {**fields, "object": read_value(fields.get("object", ""))}


CHANGES: Mapping[str, FormChange] = {
    "undo": FormChange(
        operation="undo",
        title="Undo a firing",
        button="Undo the firing",
        takes=("firing",),
        sentence=_undo_sentence,
        back=lambda fields: link("firing", id=fields["firing"]),
        done=_undoing_firing,
    ),
    "undo run": FormChange(
        operation="undo",
        title="Undo a run",
        button="Undo the run",
        takes=("run",),
        sentence=lambda fields: f"You ask to undo all firings of the run {fields['run']}.",
        back=back_to("firings", "run"),
        done=_undoing_firing,
    ),
    "undo since": FormChange(
        operation="undo",
        title="Undo firings of a rule",
        button="Undo the firings",
        takes=("rule", "since"),
        read=_read_since,
        sentence=lambda fields: (
            f"You ask to undo all firings of the rule {fields['rule']} since {fields['since']}."
        ),
        back=back_to("firings", "rule", "since"),
        done=_undoing_firing,
    ),
    "fire": FormChange(
        operation="fire",
        title="Fire a rule",
        button="Fire the rule",
        takes=("rule",),
        read=lambda fields: {"rules": [fields["rule"]]},
        sentence=lambda fields: f"You ask to fire the rule {fields['rule']} now.",
        back=back_to("rule", "rule"),
        done=_firings_of,
    ),
    "backfill": FormChange(
        operation="backfill",
        title="Backfill a rule",
        button="Backfill the rule",
        takes=("rule", "from", "to"),
        read=_read_backfill,
        sentence=_backfill_sentence,
        back=back_to("rule", "rule", "from", "to"),
        done=_firings_of,
    ),
    "approve": FormChange(
        operation="decide",
        title="Approve a batch",
        button="Approve the batch",
        takes=("firing",),
        fixed={"approve": True},
        sentence=lambda fields: (
            f"You ask to approve the batch {fields['firing']}: its rule fires now, without the"
            " deletion limit for this batch."
        ),
        back=back_to("approvals", "firing"),
        done=_decided,
    ),
    "reject": FormChange(
        operation="decide",
        title="Reject a batch",
        button="Reject the batch",
        takes=("firing",),
        fixed={"approve": False},
        sentence=lambda fields: (
            f"You ask to reject the batch {fields['firing']}: its rule skips the episodes of the"
            " batch and continues. A backfill of the rule can apply them later."
        ),
        back=back_to("approvals", "firing"),
        done=lambda fields, _: link("approvals", rejected=fields["firing"]),
    ),
    "retry": FormChange(
        operation="retry",
        title="Read quarantined episodes again",
        button="Read again",
        takes=("rule", "episode"),
        read=_read_entries,
        sentence=lambda fields: f"You ask to read again {_name_entries(fields)}.",
        back=back_to("quarantine", "rule"),
        done=_retried,
    ),
    "drop": FormChange(
        operation="drop",
        title="Drop entries of the quarantine",
        button="Drop from the quarantine",
        takes=("rule", "episode"),
        read=_read_dropped,
        sentence=lambda fields: (
            f"You ask to drop from the quarantine {_name_entries(fields)}. The episodes stay"
            " stored, and the ledger keeps its rows."
        ),
        back=back_to("quarantine", "rule"),
        done=lambda fields, answer: link(
            "quarantine", rule=fields["rule"], dropped=answer["dropped"]
        ),
    ),
    "correct": FormChange(
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
    "retract": FormChange(
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


async def show(_: Visit) -> Shown:
    """Show the first page instead: a reload of a preview has no form."""
    return Redirect(link(""))


async def submit(visit: Visit) -> Shown:
    """Answer a form with a change."""
    return await submit_change(visit, CHANGES)
