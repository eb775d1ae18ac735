"""Print what a request changes: the deltas, the counts of each rule, and the batches that wait."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import typer

from slumberd.cli.exit_codes import say
from slumberd.cli.output import print_json, print_table
from slumberd.cli.wording import listed, number, plural
from slumberd.model.firing import Counts
from slumberd.service.control_socket import Answer

DELTA_COLUMNS = ("kind", "fact", "replaces", "reason")
COUNT_COLUMNS = ("rule", "channel", *Counts._fields)

SHOWN = 50
"""Deltas that a table lists without --limit."""

AWAITS_APPROVAL = 1
"""The exit code when a batch awaits approval."""

Reports = list[dict[str, Any]]
"""What the firings of a request did, rule by rule, as the control socket answers."""


def limit_of(limit: int | None, *, json: bool) -> int | None:
    """Return how many deltas to ask for; None leaves the limit to the operation."""
    return SHOWN if limit is None and not json else limit


def print_answer(answer: Answer, *, dry_run: bool) -> None:
    """Print an answer as JSON, with whether it is that of a dry run."""
    print_json({"dry_run": dry_run, **answer})


def print_edit(answer: Answer, *, dry_run: bool, json: bool) -> None:
    """Print what a manual edit changed, or would change."""
    if json:
        print_answer(answer, dry_run=dry_run)
        return
    print_deltas(answer["deltas"], answer["deltas_total"])
    name = answer["firing_id"] or ("a dry run" if dry_run else "nothing recorded")
    print(f"{name}: {_counts_in_words(answer['counts'])}")
    if dry_run:
        print("nothing was written")


def print_undo(answer: Answer, *, dry_run: bool, json: bool) -> None:
    """Print what undoing firings changed, or would change."""
    if json:
        print_answer(answer, dry_run=dry_run)
        return
    print_deltas(answer["deltas"], answer["deltas_total"])
    if not answer["undone"]:
        print("nothing to do: all of these firings are undone already")
        return
    verb = "would undo" if dry_run else "undid"
    firings = f"{plural(len(answer['undone']), 'firing')} ({listed(answer['undone'])})"
    print(f"{verb} {firings}: {_counts_in_words(answer['counts'])}")
    if dry_run:
        print("a dry run: nothing was written")
    else:
        print(f"run {answer['run']}: `slumberd undo --run {answer['run']}` reverses this undo")


def print_deltas(deltas: Sequence[dict[str, Any]], total: int) -> None:
    """Print deltas as a table, and how many more there are.

    Args:
        deltas: The deltas to list.
        total: How many the request made.
    """
    if deltas:
        print_table(DELTA_COLUMNS, map(_delta_row, deltas))
    if total > len(deltas):
        shown = f"{number(len(deltas))} of {plural(total, 'delta')} are listed"
        print(f"{shown}; --limit {total} lists all")


def _delta_row(delta: dict[str, Any]) -> tuple[object, ...]:
    return delta["kind"], delta["fact_id"], ", ".join(delta["replaces"]), delta["reason"]


def _counts_in_words(counts: dict[str, int]) -> str:
    words = ", ".join(f"{number(count)} {kind}" for kind, count in counts.items())
    return words or "nothing to do"


def print_firings(answer: Answer, *, dry_run: bool, json: bool, nothing: str) -> None:
    """Print what firings did, or would do.

    Args:
        answer: What the operation answered.
        dry_run: Whether nothing was written.
        json: Whether to print JSON.
        nothing: The message for firings that had nothing to evaluate.

    Raises:
        typer.Exit: A batch awaits approval; with exit code 1.
    """
    if json:
        print_answer(answer, dry_run=dry_run)
    else:
        _print_reports(answer, dry_run=dry_run, nothing=nothing)
    if held := [report["held_batch"] for report in answer["reports"] if "held_batch" in report]:
        for batch in held:
            _report_held(batch)
        raise typer.Exit(AWAITS_APPROVAL)


def _report_held(batch: dict[str, Any]) -> None:
    """Report on standard error that a batch awaits approval, and the commands that decide."""
    firing_id = batch["firing_id"]
    say(
        f"batch {firing_id} waits for approval: {batch['problem']};"
        f" `slumberd approve {firing_id} --dry-run` shows it,"
        f" `slumberd approve {firing_id}` applies it, `slumberd reject {firing_id}` skips it"
    )


def _print_reports(answer: Answer, *, dry_run: bool, nothing: str) -> None:
    """Print the counts of each rule; after a dry run, also the deltas that it would make."""
    reports: Reports = answer["reports"]
    if dry_run:
        deltas = [delta for report in reports for delta in report["deltas"]]
        print_deltas(deltas, sum(report["deltas_total"] for report in reports))
    empty = "no rule is enabled; `slumberd rules` shows all"
    print_table(COUNT_COLUMNS, _count_rows(reports), empty=empty)
    if dry_run:
        _print_unread(reports)
        print("a dry run: nothing was written")
    elif answer["run"]:
        _print_run(answer["run"], reports)
    elif not any("held_batch" in report for report in reports):
        print(nothing)


def _count_rows(reports: Reports) -> Iterator[tuple[object, ...]]:
    for report in reports:
        for channel, counts in report["channels"].items():
            yield report["rule_id"], channel, *map(number, counts.values())


def _print_run(run: str, reports: Reports) -> None:
    """Print the firings of a run, and the command that undoes it."""
    firing_ids = [firing_id for report in reports for firing_id in report["firing_ids"]]
    firings = f"{plural(len(firing_ids), 'firing')}, {listed(firing_ids)}"
    print(f"run {run}: {firings}; `slumberd undo --run {run}` undoes it")


def _print_unread(reports: Reports) -> None:
    """Print how many versions of episodes a dry run did not read."""
    for report in reports:
        if report["unread"]:
            versions = plural(report["unread"], "more version")
            print(f"{report['rule_id']}: {versions} of episodes not read, and not counted above")
