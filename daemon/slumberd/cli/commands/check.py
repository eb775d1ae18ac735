"""`slumberd check`: list the mistakes in configuration and rules, and preview rules on the data."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import typer

from slumberd.cli.context import settings_of
from slumberd.cli.environment import settings_variables
from slumberd.cli.exit_codes import say
from slumberd.cli.options import Config, Json, StateDir
from slumberd.cli.output import cell, describe_channels, plural, print_json, print_table
from slumberd.cli.own_installation import name_own_pip
from slumberd.cli.setup import clean_up_on_sigterm, load_settings_and_rules
from slumberd.cli.terminal import steps
from slumberd.clock import SystemClock
from slumberd.consolidation.key_history import MultiValuedHint
from slumberd.daemon.rules import make_cypher_check, make_model_check
from slumberd.logs.lines import printable
from slumberd.model.errors import ConfigurationError, Mistake, UsageError
from slumberd.model.firing import Counts
from slumberd.model.rule import ConsolidationRule
from slumberd.rules.filters.sandbox import check_filter
from slumberd.rules.rule_loader import RuleSet, load_rule_files
from slumberd.rules.settings import Settings, config_file
from slumberd.rules.warnings import find_empty_directory, find_warnings
from slumberd.tools.diagnostics.path_checks import (
    account_of,
    find_path_mistakes,
    find_unreadable_files,
)
from slumberd.tools.rule_testing.loader import ENDINGS
from slumberd.tools.rule_testing.preview import Preview, PreviewResult, Reasons, preview_rules
from slumberd.web.http.access import read_tokens
from slumberd.workers.scheduling import cron

COLUMNS = (
    "rule", "matches", "of", "pending", "channel",
    "filtered", "added", "updated", "deleted", "noop", "quarantined", "restored",
)  # fmt: skip

_NO_REASONS = Reasons({}, {})

_SLIPS = (
    (
        re.compile(r"(?:[=<>!]=?|<>)\s*null\b", re.IGNORECASE),
        "nothing is equal to NULL; write IS NULL, or IS NOT NULL",
    ),
    (
        re.compile(r"\bconfidence\s*>=?\s*(?:[2-9]|\d{2,}|1\.\d*[1-9])", re.IGNORECASE),
        "confidence is 0 to 1",
    ),
    (
        re.compile(r"\bintent\s*(?:==?|in\s*\()\s*'add'", re.IGNORECASE),
        "an episode that gives no intent has NULL there; write ifnull(intent, 'add')",
    ),
    (
        re.compile(r"\bmetadata\s*==?\s*'", re.IGNORECASE),
        "metadata is JSON text; write json_extract(metadata, '$.KEY')",
    ),
    (
        re.compile(r"\bsource_node\s*(?:=|in\b|like\b|glob\b)", re.IGNORECASE),
        "source_node is what wrote the episode; who spoke is speaker, and is_person is 1 for the"
        " person",
    ),
    (re.compile(r"'[^']*[A-Z]"), "texts are compared with their case; lower(...) takes it away"),
)
"""Frequent mistakes in filters that select nothing, each with its correction."""


async def _preview(settings: Settings, rules: RuleSet, *, whole: bool) -> PreviewResult:
    """Return what each rule would do to the data; arguments and errors as of `preview_rules`."""
    with clean_up_on_sigterm(), steps() as show_step:
        return await preview_rules(
            settings, rules, whole=whole, clock=SystemClock(), show_step=show_step
        )


_VERBS = {"add": "added", "update": "updated", "delete": "deleted", "restore": "restored"}


def print_previews(found: PreviewResult) -> None:
    """Print a row for each rule and channel, then remarks and suggestions."""
    print_table(COLUMNS, (row for preview in found.previews for row in _rows(preview)))
    for preview in found.previews:
        for line in remarks(preview):
            print(line)
    for replaced in found.replaced:
        print(suggestion_for(replaced))
    if found.channels is not None:
        print(describe_channels(found.channels.appear, found.channels.go))


def suggestion_for(replaced: MultiValuedHint) -> str:
    """Return the suggestion for a predicate whose objects keep replacing each other."""
    predicate, channel = printable(replaced.predicate), printable(replaced.channel)
    return (
        f"{predicate} in channel {channel}: of {replaced.replaced} of {replaced.keys} keys the"
        f" objects keep replacing each other (up to {replaced.most} different ones);\n"
        f"  if they hold at once: channels: {{{channel}: {{multi_valued: [{predicate}]}}}}"
    )


def _rows(preview: Preview) -> Iterator[tuple[object, ...]]:
    rule, matching = preview.rule, preview.matching
    selected = rule.id, matching.matched, matching.episodes, preview.pending
    if not rule.enabled:
        yield *selected, "(disabled)", *[None] * (len(COLUMNS) - len(selected) - 1)
    for channel, counts in preview.channels.items():
        reasons = preview.reasons.get(channel, _NO_REASONS)
        yield *selected, channel, *_count_cells(counts, reasons)


def _count_cells(counts: Counts, reasons: Reasons) -> tuple[object, ...]:
    return (
        counts.filtered,
        counts.added,
        counts.updated,
        counts.deleted,
        _with_reasons(counts.noop, reasons.noop),
        _with_reasons(counts.quarantined, reasons.quarantined),
        counts.restored,
    )


def _with_reasons(count: int, reasons: Mapping[str, int]) -> str:
    words = ", ".join(f"{cell(reason)} {number}" for reason, number in reasons.items())
    return f"{count} ({words})" if words else str(count)


def remarks(preview: Preview) -> Iterator[str]:
    """Yield remarks on a rule that would await approval, selects nothing, or fails."""
    name, matching = preview.rule.id, preview.matching
    if preview.held:
        yield f"{name} awaits approval: {preview.held}; later batches are not counted"
    if preview.unrecorded:
        yield f"{name} waits for the answers of its language model; later episodes are not counted"
    if matching.episodes and not matching.matched:
        shown = printable(preview.rule.when_filter)
        yield f"{name} matches nothing of {plural(matching.episodes, 'episode')}: {shown}"
        if slip := slip_in(preview.rule):
            yield f"  perhaps: {slip}"
    if changes := _changes_again(preview):
        unread = f", and {preview.unread} rows of the log are not counted"
        yield (
            f"{name} extracts otherwise than before: `slumberd backfill {name}` would {changes};"
            f" --dry-run names them{unread if preview.unread else ''}"
        )
    if matching.failed:
        problem = printable(matching.problem)
        episodes = plural(matching.failed, "episode")
        yield f"{name} fails on {episodes}, which a firing quarantines: {problem}"


def _changes_again(preview: Preview) -> str:
    """Return what a backfill would do, in words; empty if nothing."""
    done = {
        verb: sum(getattr(counts, field) for counts in preview.again.values())
        for verb, field in _VERBS.items()
    }
    return ", ".join(f"{verb} {plural(count, 'fact')}" for verb, count in done.items() if count)


def slip_in(rule: ConsolidationRule) -> str:
    """Return the probable correction of a filter that selects nothing; empty if unknown."""
    found = (meant for pattern, meant in _SLIPS if pattern.search(rule.when_filter))
    return next(found, "")


def document(preview: Preview) -> dict[str, Any]:
    """Return the JSON form of a preview."""
    matching = preview.matching
    return {
        "rule_id": preview.rule.id,
        "enabled": preview.rule.enabled,
        "episodes": matching.episodes,
        "matches": matching.matched,
        "failed": matching.failed,
        "problem": matching.problem or None,
        "pending": preview.pending,
        "channels": {
            channel: {
                **counts._asdict(),
                "reasons": preview.reasons.get(channel, _NO_REASONS)._asdict(),
            }
            for channel, counts in preview.channels.items()
        },
        "backfill": {channel: counts._asdict() for channel, counts in preview.again.items()},
        "exceeded_limit": preview.held or None,
        "remarks": list(remarks(preview)),
    }


def check(
    paths: Annotated[
        list[Path] | None, typer.Argument(metavar="[PATH]...", help="Rule files, or directories.")
    ] = None,
    against_data: Annotated[
        bool,
        typer.Option(
            "--against-data", help="Show what each rule selects, and what a firing would do."
        ),
    ] = False,
    strict: Annotated[
        bool, typer.Option("--strict", help="Exit with 78 for a warning, too.")
    ] = False,
    json: Json = False,
    config: Config = None,
    state_dir: StateDir = None,
) -> None:
    """List every mistake, as file:line:column: path: problem, and exit with 78 when there is one.

    Without a PATH, the command checks the configuration, the rules that it names, and each path of
    it: whether the daemon's user can read or write there. That is the user of the systemd unit, or
    the owner of the state directory. With PATHs, it
    checks those rule files together, as if they lay in one directory, and does not read the
    configuration.

    A warning names what is valid, but probably not meant: a condition that is never true, AND
    beside OR without parentheses, a channel whose name resembles another one, or a directory
    without rule files. Warnings are on standard error, and with --json under `warnings`. They leave
    the exit code at 0, unless --strict is given.

    With --against-data, the command applies the rules to a copy of the data of the configuration.
    It shows how many episodes each filter matches now, how many versions are pending, and what a
    firing would do. It also lists predicates whose objects keep replacing each other: they probably
    belong under multi_valued. If the rules change what is under channels, it says how many facts
    appear and go. For a rule that extracts from text, it says what a backfill would change: an
    edited pattern file, or a new slumberd, may read earlier words otherwise. Only the copy, in
    $TMPDIR, is written; a daemon may run.
    """
    try:
        if paths:
            settings = settings_of(config, state_dir) if against_data else None
            rules = _rules_in(paths, settings)
            directories = [path for path in paths if path.is_dir()]
        else:
            settings, rules = load_settings_and_rules(config, state_dir)
            _check_paths(settings, config, rules)
            directories = [] if settings.are_rules_published else [settings.rules_dir]
    except ConfigurationError as error:
        _print_mistakes(error, json=json)
        raise typer.Exit(error.exit_code) from error
    found = None
    if settings and against_data:
        found = asyncio.run(_preview(settings, rules, whole=not paths))
    host = settings.host_store if settings else None
    if host is not None:
        say(f"the stores are the host's own ({host}): only they check the filters")
    warnings = _warnings_about(rules, directories, filters=host is None)
    checked = _Checked(rules, warnings, strict=strict)
    _print_valid(checked, found, json=json)
    if not checked.passes:
        raise typer.Exit(ConfigurationError.exit_code)


class _Checked(NamedTuple):
    """Rules without a mistake, and the warnings about them."""

    rules: RuleSet
    warnings: Sequence[Mistake]
    strict: bool

    @property
    def passes(self) -> bool:
        """Whether the command succeeds."""
        return not (self.strict and self.warnings)


def _check_paths(settings: Settings, config: Path | None, rules: RuleSet) -> None:
    """Check that the daemon can use each path of the configuration.

    Raises:
        ConfigurationError: With every path that it cannot use.
    """
    account = account_of(settings)
    file = config_file(config, settings_variables())
    mistakes = [
        *find_path_mistakes(settings, file, read_tokens=read_tokens, account=account),
        *find_unreadable_files(settings, file, account, rules),
    ]
    if mistakes:
        raise ConfigurationError(mistakes)


def _rules_in(paths: Sequence[Path], settings: Settings | None) -> RuleSet:
    return load_rule_files(
        _without_tests(paths),
        check_filter=check_filter,
        check_cron=cron.check,
        timezone=settings.timezone if settings else "UTC",
        check_cypher=make_cypher_check(graph=True),
        check_model=make_model_check(model=True),
    )


def _without_tests(paths: Sequence[Path]) -> list[Path]:
    """Return the paths without tests of rules, which the pattern `rules/*.yaml` also matches."""
    named = [path for path in dict.fromkeys(paths) if not path.name.endswith(ENDINGS)]
    if not named:
        raise UsageError(f"{str(paths[0])!r} holds tests, not rules; `slumberd test` runs them")
    return named


def _warnings_about(rules: RuleSet, directories: Iterable[Path], *, filters: bool) -> list[Mistake]:
    """Return warnings about rules that are valid, but probably not what their author meant.

    Args:
        filters: Whether the filters are slumberd's; a host's own stores may read other words.
    """
    empty = [one for directory in directories for one in find_empty_directory(directory)]
    return [*empty, *rules.outdated, *(find_warnings(rules) if filters else ())]


def _print_mistakes(error: ConfigurationError, *, json: bool) -> None:
    if json:
        mistakes = [asdict(mistake) for mistake in error.mistakes]
        print_json({"ok": False, "mistakes": mistakes, "warnings": [], "rules": []})
        return
    for mistake in error.mistakes:
        print(name_own_pip(str(mistake)))


def _print_valid(checked: _Checked, found: PreviewResult | None, *, json: bool) -> None:
    """Print that the rules have no mistakes, the warnings, and the preview when there is one."""
    rules = checked.rules
    ids = [rule.id for rule in rules.rules]
    if json:
        previews = {} if found is None else _previews_document(found)
        warnings = [asdict(warning) for warning in checked.warnings]
        answer = {"ok": checked.passes, "mistakes": [], "warnings": warnings, "rules": ids}
        print_json({**answer, **previews})
        return
    for warning in checked.warnings:
        say(f"warning: {warning}")
    files = len(set(rules.sources.values()))
    count = f"{plural(len(ids), 'rule')} in {plural(files, 'file')}"
    warned = f"; {plural(len(checked.warnings), 'warning')}" if checked.warnings else ""
    print(f"valid: {count}: {', '.join(ids) or 'none'}{warned}")
    if found and found.previews:
        print()
        print_previews(found)


def _previews_document(found: PreviewResult) -> dict[str, Any]:
    replaced = [
        {**predicate._asdict(), "remark": suggestion_for(predicate)} for predicate in found.replaced
    ]
    plan = found.channels
    channels = None if plan is None else {"facts_appear": plan.appear, "facts_go": plan.go}
    data = [document(preview) for preview in found.previews]
    return {"data": data, "replaced": replaced, "channels": channels}
