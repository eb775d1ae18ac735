"""Stories of commands whose answers are recorded; each is told on an installation of its own.

A test tells each story again, and compares. To record all answers again, and see what changed:

    python -m tests.support.answer_stories && git diff tests/cli
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

from slumberd.cli.own_installation import own_program
from tests.support.builders import at, episode, triple
from tests.support.cli_runner import called
from tests.support.recorded_answers import AnswerRecorder, Form, layout
from tests.support.repository import ROOT
from tests.support.trial_installation import TrialInstallation, rule, rules

FOLDERS: dict[Form, str] = {"json": "answers", "text": "texts"}
"""The folder of the recordings of each form, in `tests/cli`."""

LEAP = '{cron: "0 3 29 2 *", timezone: UTC}'
LIKES = rule("likes", "predicate = 'likes'", "notes", "facts")
CAUTIOUS = rule("cautious", "", limits="{max_deletes: 0}")
REMOVED = rule("removed", "predicate = 'likes'")
NIGHT = rule("night", "0", cadence=LEAP, start="now")
SHOUT = {"intent": "shout"}
GONE = {"intent": "delete"}
BAD_LINES = """\
{"id": 5, "content": "no id"}
{"id": "m", "content": "misspelled", "timestamp": "2026-01-01T12:00:06Z", "source_node": "chat",\
 "agent": "rag", "user": "alice", "session": "s1", "metadata": {"confidance": 1}}
"""
TESTS = """\
tests:
  - name: this test passes
    episodes: [{id: e1, subject: alice, predicate: likes, object: tea}]
    expect: {facts: [{id: e1}, {id: "@notes/e1"}]}
  - name: this test fails
    episodes: [{id: e1, subject: alice, predicate: likes, object: tea, intent: shout}]
    expect: {facts: [{id: e1, object: tea}]}
  - name: this test has steps that fail
    steps:
      - episodes: [{id: e1, subject: alice, predicate: likes, object: tea}]
        expect: {facts: [{id: e1, object: rum}], filtered: [e1]}
      - episodes: [{id: e2, subject: alice, predicate: likes, object: gin}]
        expect: {facts: []}
"""


def tell_all(answers: AnswerRecorder, commands: str) -> None:
    """Call a command a line."""
    for line in commands.strip().splitlines():
        answers(*line.split())


def read(site: TrialInstallation, answers: AnswerRecorder) -> None:
    """Read a store with a batch that awaits approval, a removed rule and pending episodes."""
    site.rules.write_text(rules(LIKES, CAUTIOUS, REMOVED, NIGHT))
    site.put(
        triple("e1", "ada", "likes", "tea", timestamp=at(1)),
        triple("odd", "ada", "likes", "ink", timestamp=at(2), metadata=SHOUT),
        triple("x", "bob", "is", "here", timestamp=at(3)),
        episode("plain", content="She hummed.", timestamp=at(3)),
    )
    site.fire()
    site.rules.write_text(rules(LIKES, CAUTIOUS, NIGHT))
    site.put(
        triple("e2", "ada", "likes", "rum", timestamp=at(4)),
        triple("e3", "bob", "is", "here", timestamp=at(5), metadata=GONE),
    )
    site.call("fire", "cautious")
    again = site.state / "again.db"
    tell_all(
        answers,
        f"""
        status
        status --check
        rules
        rules --removed
        next -n 1
        report --since 2026-01-01
        report --since 2026-01-01 --limit 1
        facts
        facts --user alice --agent rag --subject ada --predicate likes --object tea --id e1 --id e2
        facts --prefix user=al --glob predicate=l* --regex subject=a.a --object-json "tea"
        facts --channel facts --since 2026-01-01 --until 2026-02-01 --order said_at --descending
        facts --min-confidence 0.5 --max-confidence 1 --limit 1
        facts --user nobody
        facts --predicate never
        facts --valid-at 2026-01-01T12:00:02Z
        recent nobody
        recent alice --session s1 --agent rag --limit 2
        search tea --user alice --limit 3
        search zebra --user alice --kind facts --agent rag
        context alice tea --budget 400 --session s1
        quarantine ls
        why e1 --content
        why-not odd
        why-not e2
        audit ls --limit 3
        audit ls --kind firing --after 5
        audit ls --rule likes --fact e1
        audit verify
        audit verify --chain-only
        audit replay {again}
        """,
    )
    if answers.form == "json":
        answers.record(["audit", "export"], site.call("audit", "export"), "json")


ASKED = """
status
rules
rules --removed
next
report --since 2026-01-01
facts
facts --id e1
recent alice
why e1
why-not e1
quarantine ls
quarantine retry
quarantine drop e1
audit ls
audit verify
undo likes@1
undo --run abcdefghijkl
undo likes --since 2026-01-01
unpin e1 --reason wrong
approve likes@1
reject likes@1
backfill likes --dry-run
forget --user alice --dry-run
fire nobody
pause nobody
resume likes
test
"""


def find_nothing(site: TrialInstallation, answers: AnswerRecorder) -> None:
    """Ask for what does not exist: rules first, then databases, then what is in them."""
    site.rules.write_text(rules())
    tell_all(answers, "check\nrules\nstatus\nnext")
    site.rules.write_text(rules(LIKES, NIGHT))
    tell_all(answers, ASKED)
    tell_all(answers, "fire --all")
    tell_all(answers, ASKED)


def change(site: TrialInstallation, answers: AnswerRecorder) -> None:
    """Change facts and episodes in every way, each first as a dry run."""
    site.rules.write_text(rules(CAUTIOUS, LIKES))
    lines = site.config.with_name("lines.jsonl")
    lines.write_text(BAD_LINES)
    answers("import", str(lines))
    site.put(
        triple("e1", "ada", "likes", "tea", timestamp=at(1)),
        triple("odd", "ada", "likes", "ink", timestamp=at(2), metadata=SHOUT),
        triple("b1", "bob", "is", "here", timestamp=at(3), user="bob"),
    )
    tell_all(answers, "fire --all --dry-run --limit 1\nfire --all")
    pinned = "--user alice --agent rag --subject ada --predicate likes --object gin --reason taste"
    tell_all(
        answers,
        f"""
        pin {pinned} --id p --dry-run
        pin {pinned} --id p --channel notes --confidence 0.5
        facts --channel notes
        why @notes/p
        why @notes/e1
        unpin @notes/p @notes/e1 --reason wrong --dry-run
        unpin @notes/p @notes/e1 --reason wrong
        undo likes@6 --dry-run
        undo likes@6
        """,
    )
    tell_all(answers, f"undo --run {answers.runs[0]} --dry-run\nundo --run {answers.runs[0]}")
    tell_all(
        answers,
        """
        undo likes --since 2026-01-01
        backfill likes --dry-run
        backfill likes
        quarantine retry --rule likes --dry-run
        quarantine retry odd
        quarantine drop odd --dry-run
        quarantine drop --all
        """,
    )
    site.put(triple("e3", "ada", "likes", "tea", timestamp=at(5), metadata=GONE))
    tell_all(answers, "fire cautious")
    held = site.lines("rules")[0]["held_firing_id"]
    tell_all(answers, f"approve {held} --dry-run\nreject {held} --dry-run\napprove {held}")
    backup = site.config.with_name("backup")
    tell_all(
        answers,
        f"""
        pause likes
        status
        resume likes
        audit ls --limit 100
        audit verify
        facts
        facts --valid-at 2026-01-01T12:00:04Z
        backup {backup}
        backup {backup}
        forget --user alice --session s1 --dry-run
        forget --user alice --agent rag --yes
        forget --user bob --yes
        restore {backup} --check
        restore {backup}
        """,
    )
    if answers.form == "json":
        answers.record_log()


def change_rules(site: TrialInstallation, answers: AnswerRecorder) -> None:
    """Check rules, preview them, compare them and run their tests."""
    lives = rule("lives", "predicate = 'lives_in'")
    site.rules.write_text(rules(LIKES, lives, REMOVED, rule("idle", enabled="false")))
    site.put(
        triple("e1", "ada", "likes", "tea", timestamp=at(1)),
        triple("e2", "ada", "likes", "rum", timestamp=at(2)),
        triple("e3", "ada", "likes", "tea", timestamp=at(3)),
        triple("e4", "ada", "lives_in", "Porto", timestamp=at(4)),
        triple("odd", "ada", "likes", "ink", timestamp=at(5), metadata=SHOUT),
    )
    tell_all(answers, "check\ncheck --against-data")
    site.fire()
    no_tea = rule("likes", "predicate = 'likes' AND object = 'rum'", limits="{max_deletes: 0}")
    site.candidate.write_text(
        rules(no_tea, rule("lives", "predicate = 'LIVES_IN'"), multi_valued="likes")
        + rule("new", "predicate = 'likes'", "new")
    )
    tell_all(answers, f"diff {site.candidate.parent}\ncheck --against-data {site.candidate}")
    often = rule("likes", "predicate = 'likes'", "notes", "facts", cadence="{every: 2}")
    off = rule("lives", "predicate = 'lives_in'", enabled="false")
    site.candidate.write_text(rules(often, off, REMOVED, rule("idle")))
    tell_all(answers, f"diff {site.candidate.parent}\ndiff {site.candidate.parent} --rule likes")
    site.rules.with_name("rules.test.yaml").write_text(TESTS)
    tell_all(answers, "test\nnext --cron @yearly --timezone UTC -n 2")
    site.rules.write_text(rules(rule("Likes", enabeld="true")))
    tell_all(answers, "check\ndoctor --list")


def ask_daemon(site: TrialInstallation, answers: AnswerRecorder) -> None:
    """Ask a daemon that runs, through its socket."""
    site.rules.write_text(rules(NIGHT))
    site.put(triple("e1", "ada", "likes", "tea", timestamp=at(1)))
    site.fire()
    with site.daemon():
        tell_all(answers, "status\npause night\nnext -n 1\nresume night\nfire night")
        site.rules.write_text(
            rules(rule("night", "", cadence=LEAP), rule("new", "0", cadence=LEAP))
        )
        site.config.write_text(site.config.read_text() + "timezone: Asia/Tokyo\nstop_seconds: 9\n")
        tell_all(answers, "status\nstatus --check\nreload\nfire night\nreload\nrules")


def describe_program(_: TrialInstallation, answers: AnswerRecorder) -> None:
    """Print the version, the small story, and the fields of the log's events."""
    answers.record(["demo"], called("demo"), "text")
    answers.record(["version", "--json"], called("version", "--json"), "json")
    answers.lines += ["Levels and fields of each event:"]
    for document in map(json.loads, called("events", "--json").stdout.splitlines()):
        fields = document["else"]["properties"]
        level = fields.pop("level")["enum"]
        del fields["ts"], fields["event"]
        answers.lines += layout({document["title"]: level, **fields})


STORIES: dict[str, Callable[[TrialInstallation, AnswerRecorder], None]] = {
    "reading": read,
    "nothing": find_nothing,
    "changes": change,
    "rules": change_rules,
    "daemon": ask_daemon,
    "program": describe_program,
}


def told(name: str, form: Form, directory: Path) -> list[str]:
    """Tell a story in an empty directory; return the lines of its recording."""
    site = TrialInstallation(directory, rules())
    recorder = AnswerRecorder(site, form, {own_program(): "slumberd"})
    STORIES[name](site, recorder)
    return "\n".join(recorder.lines).rstrip("\n").splitlines()


TOLD: list[tuple[str, Form]] = [
    *((name, "json") for name in STORIES),
    *((name, "text") for name in STORIES if name != "program"),
]
"""Each story, and a form of its answers; what the program says of itself has one."""


def recorded(name: str, form: Form) -> list[str]:
    """Return the lines of the recording of a story."""
    return _file(name, form).read_text().splitlines()


def _file(name: str, form: Form) -> Path:
    return ROOT / "tests" / "cli" / FOLDERS[form] / f"{name}.txt"


def main() -> None:
    """Record every story again."""
    for name, form in TOLD:
        with TemporaryDirectory() as directory:
            lines = told(name, form, Path(directory))
        _file(name, form).write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
