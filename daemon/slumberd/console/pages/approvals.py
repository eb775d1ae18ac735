"""The page of the batches that await approval."""

from __future__ import annotations

from typing import Any

from slumberd.console.changes import LISTED
from slumberd.console.dry_runs import read_dry_run
from slumberd.console.fact_words import add_words
from slumberd.console.visit import Shown, View, Visit
from slumberd.operations.caller import Right


async def show(visit: Visit) -> Shown:
    """Show the batches, and what one of them would do.

    A dry run costs as much as a firing, so the page makes one only for the batch that the person
    asks about.
    """
    visit.caller.require(Right.OPERATE)
    held = (await visit.ask("held"))["held"]
    firing = visit.fields.get("firing")
    waiting = {batch["firing_id"] for batch in held if not batch["approved"]}
    values: dict[str, Any] = {
        "held": held,
        "firing": firing,
        "gone": firing is not None and firing not in waiting,
        "rejected": visit.fields.get("rejected"),
        "dry_run": None,
        "deltas": [],
    }
    if firing in waiting:
        answer = await visit.ask("decide", firing=firing, approve=True, dry_run=True, limit=LISTED)
        values["dry_run"] = read_dry_run(answer, most=LISTED)
        values["deltas"] = await add_words(visit, values["dry_run"].deltas)
    return View("approvals.html", "Approvals", values)
