"""Make a state directory with a configuration, rules and their test; check their model before."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from slumberd.consolidation.extraction.language_model import answer_schema, messages_for
from slumberd.model.errors import (
    ExtraMissingError,
    ModelNotCheckedError,
    ModelRequestError,
    ModelUnavailableError,
    OutputExistsError,
    UsageError,
)
from slumberd.model.extraction import ModelSettings, Question, Turn
from slumberd.rules.file_access import is_installed
from slumberd.workers.language_models.recorder import ChatRequest

DIRECTORY_MODE, FILE_MODE = 0o700, 0o600

CONFIG = """\
# The configuration of slumberd. Relative paths start at this file. `slumberd schema config` has
# every key.
state_dir: .
rules_dir: rules.d
# A search recognises the language of the texts; forms of a word then count as one.
search: {language: auto}
"""
CONVERSATION = """\
# These rules turn conversations into facts. `slumberd check` reads all rules, `slumberd test` runs
# the test beside them, and `slumberd why FACT` explains a fact.
rules:
  # What a program states: a triple in the metadata of an episode, or what becomes of a fact.
  - id: stated
    cadence: {every: 1}  # as soon as 1 episode is new
    when_filter: >-
      (predicate IS NOT NULL AND confidence >= 0.5) OR intent IS NOT NULL
      OR json_extract(metadata, '$.triples') IS NOT NULL
    then_emits: [facts]

  # What the person says in plain English, such as "I moved to Bergen", unless a program states it.
  # What an assistant, a tool or a document says is no fact of the person.
  - id: said
    cadence: {every: 1}
    when_filter: >-
      is_person AND coalesce(intent, subject, predicate, object,
      json_extract(metadata, '$.triples'), json_extract(metadata, '$.replaces')) IS NULL
    then_emits: [facts]
    stages:
      - extract: {with: conversation}

  # Which texts were said again, whatever their case and white space. Search and context leave out
  # all but the newest. The facts stay.
  - id: repeats
    cadence: {cron: "0 3 * * *"}  # each night, because it compares all episodes
    when_filter: ""
    then_emits: []
    stages:
      - dedup: {method: exact}

channels:
  facts:
    # A predicate holds many values: a second allergy stands beside the first. Those that hold one,
    # such as lives_in, are in the vocabulary of `conversation`: docs/reference/vocabulary.md. Of
    # these a newer value replaces the older one. Name further ones here, and all that count before
    # you remove the rule `said`; a rule with `enabled: false` keeps them.
    values: many
    single_valued: []
"""
CONVERSATION_TEST = """\
# What the rules beside it are expected to do. `slumberd test` runs it.
tests:
  - name: the newest home counts, both allergies do, and the assistant's words do not
    episodes:
      - {id: e1, source_node: user, content: I live in Oslo.}
      - {id: e2, source_node: user, content: I am allergic to peanuts.}
      - {id: e3, source_node: user, content: I moved to Bergen.}
      - {id: e4, source_node: user, content: "Also, I'm allergic to penicillin."}
      - {id: e5, source_node: assistant, content: I live in the cloud.}
    expect:
      facts:
        - {id: "e3#1", subject: user, predicate: lives_in, object: Bergen}
        - {id: "e2#1", subject: user, predicate: allergic_to, object: peanuts}
        - {id: "e4#1", subject: user, predicate: allergic_to, object: penicillin}

  - name: a program states triples, and a guess is no fact
    episodes:
      - {id: e1, subject: ada, predicate: lives_in, object: Oslo}
      - {id: e2, subject: ada, predicate: lives_in, object: Bergen}
      - {id: e3, subject: ada, predicate: lives_in, object: Rome, confidence: 0.4}
    expect:
      facts:
        - {id: e2, subject: ada, predicate: lives_in, object: Bergen}
"""
TASKS = """\
# These rules keep what agents log about their tasks. `slumberd check` reads all rules, `slumberd
# test` runs the test beside them, and `slumberd why FACT` explains a fact.
rules:
  # What a program states: a triple in the metadata of an episode, or what becomes of a fact.
  # Nothing is taken from the text of an episode.
  - id: stated
    cadence: {every: 1}  # as soon as 1 episode is new
    when_filter: >-
      (predicate IS NOT NULL AND confidence >= 0.5) OR intent IS NOT NULL
      OR json_extract(metadata, '$.triples') IS NOT NULL
    then_emits: [facts]

  # Which episodes are old: a month, unless `importance` in the metadata is 0.8 or more. Search and
  # context leave them out. Their facts stay.
  - id: old
    cadence: {cron: "0 3 * * *"}  # each night
    when_filter: ""
    then_emits: []
    stages:
      - decay: {half_life: 7d, threshold: 0.05}

channels:
  facts:
    # A predicate holds many values: a task may use two tools. These hold one, so a newer value
    # replaces the older one.
    values: many
    single_valued: [
      status, owner, assigned_to, priority, due, deadline, started_at, finished_at, progress,
      outcome, result, error, exit_code, duration, cost, branch, version,
    ]
"""
TASKS_TEST = """\
# What the rules beside it are expected to do. `slumberd test` runs it.
tests:
  - name: the newest status counts, both tools do, and text alone states nothing
    episodes:
      - {id: e1, subject: task 7, predicate: status, object: open}
      - {id: e2, subject: task 7, predicate: uses, object: the linter}
      - {id: e3, subject: task 7, predicate: uses, object: the compiler}
      - {id: e4, subject: task 7, predicate: status, object: done}
      - {id: e5, source_node: user, content: I live in Oslo.}
    expect:
      facts:
        - {id: e2, subject: task 7, predicate: uses, object: the linter}
        - {id: e3, subject: task 7, predicate: uses, object: the compiler}
        - {id: e4, subject: task 7, predicate: status, object: done}

  - name: an old episode is archived, and its fact stays
    at: "2026-03-01T03:00:00Z"
    episodes:
      - {id: e1, timestamp: "2026-01-01T09:00:00Z", subject: a, predicate: status, object: done}
      - {id: e2, timestamp: "2026-02-28T09:00:00Z", subject: b, predicate: status, object: open}
    expect:
      facts:
        - {id: e1, subject: a, predicate: status, object: done}
        - {id: e2, subject: b, predicate: status, object: open}
        - {channel: marks, subject: e1, predicate: archived, object: decayed}
"""


_SAID = """\
      - extract: {with: conversation}
"""
_SAID_WITH_MODEL = """\
      - extract:
          - {with: conversation}
          # The language model reads the texts in which the entry above found nothing. It may take
          # back the facts that a text ends.
          - {with: openai, model: {model}, may_retract: true}
"""
_MODEL_TEST = """\

  - name: the language model reads what the patterns cannot
    episodes:
      - {id: e1, source_node: user, content: "Guess who has just become a nurse? Me!"}
    answers: {e1: [{subject: user, predicate: job, object: nurse}]}
    expect:
      facts:
        - {id: "e1#1", subject: user, predicate: job, object: nurse}
"""
_MODEL_CONFIG = """\
# The server that the rule `said` asks. It gets the texts of the person, and their current facts.
language_model:
  base_url: {url}
"""
_KEY_CONFIG = """\
  key_file: {file}
"""
KEY_FILE = "model.key"
"""The file of a new state directory with the secret of the language model's server."""


class Purpose(StrEnum):
    """What the rules of a new state directory are for."""

    CONVERSATION = "conversation"
    TASKS = "tasks"


@dataclass(frozen=True, slots=True)
class NewModel:
    """The language model of a new state directory.

    Attributes:
        url: The address of its server, up to ``/v1``.
        name: Its name, as the server knows it.
        secret: The secret that the server asks for; None without one.
    """

    url: str
    name: str
    secret: str | None = None


_RULES = {
    Purpose.CONVERSATION: (CONVERSATION, CONVERSATION_TEST),
    Purpose.TASKS: (TASKS, TASKS_TEST),
}


def files_for(purpose: Purpose) -> Mapping[str, str]:
    """Return the text of each file of a new state directory, by its path in the directory."""
    rules, test = _RULES[purpose]
    return {
        "slumberd.yaml": CONFIG,
        f"rules.d/{purpose}.yaml": rules,
        f"rules.d/{purpose}.test.yaml": test,
    }


def files_with_model(directory: Path, model: NewModel) -> Mapping[str, str]:
    """Return the files of a state directory for conversations, whose rule asks a language model.

    Args:
        directory: The new directory.
        model: The language model.
    """
    asking = _SAID_WITH_MODEL.replace("{model}", json.dumps(model.name))
    config = CONFIG + _MODEL_CONFIG.replace("{url}", json.dumps(model.url))
    secret = {}
    if model.secret is not None:
        file = json.dumps(str(directory.absolute() / KEY_FILE))
        config += _KEY_CONFIG.replace("{file}", file)
        secret = {KEY_FILE: f"{model.secret}\n"}
    return {
        "slumberd.yaml": config,
        "rules.d/conversation.yaml": CONVERSATION.replace(_SAID, asking),
        "rules.d/conversation.test.yaml": CONVERSATION_TEST + _MODEL_TEST,
        **secret,
    }


def make_state_directory(
    directory: Path,
    purpose: Purpose = Purpose.CONVERSATION,
    files: Mapping[str, str] | None = None,
) -> None:
    """Make a state directory that only its owner can read.

    Args:
        directory: A new or an empty directory.
        purpose: What its rules are for.
        files: The text of each file, by its path in the directory; None for those of the purpose.

    Raises:
        OutputExistsError: The directory exists and is not empty.
    """
    _make_directories(directory)
    for name, text in (files_for(purpose) if files is None else files).items():
        _write(directory / name, text)


def require_empty(directory: Path) -> None:
    """Check that nothing is in a directory.

    Raises:
        OutputExistsError: The directory exists and is not empty.
    """
    if directory.exists() and not (directory.is_dir() and not any(directory.iterdir())):
        raise OutputExistsError(str(directory), "name a new or an empty directory")


def _make_directories(directory: Path) -> None:
    """Make the state directory and the directory of rules.

    Raises:
        OutputExistsError: The state directory exists and is not empty.
    """
    require_empty(directory)
    directory.parent.mkdir(parents=True, exist_ok=True)
    for path in (directory, directory / "rules.d"):
        path.mkdir(DIRECTORY_MODE, exist_ok=True)
        path.chmod(DIRECTORY_MODE)  # an existing directory may be open to others


def _write(path: Path, text: str) -> None:
    """Write a new file that only its owner can read.

    Raises:
        OutputExistsError: The file exists already.
    """
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, FILE_MODE)
    except FileExistsError as error:
        raise OutputExistsError(str(path)) from error
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(text)


SECONDS = 60.0
"""How long the answer to the check may take: a server may load its model first."""

_PARAMETERS = {"temperature": 0, "max_tokens": 200}


def require_extra() -> None:
    """Check that language models can be asked here.

    Raises:
        ExtraMissingError: The extra is not installed.
    """
    if not is_installed("llm"):
        raise ExtraMissingError("llm", "a language model cannot be asked")


async def check_model(url: str, name: str | None, secret: str | None) -> NewModel:
    """Ask a language model about one short sentence; return it with its name.

    Args:
        url: The address of the server, up to ``/v1``.
        name: The name of the model; None takes the only one that the server has.
        secret: The secret that the server asks for; None without one.

    Raises:
        ModelNotCheckedError: There is no answer.
        UsageError: The server has several models, or none, and no name is given.
    """
    # The extra may be missing, so only those who name a language model import its client.
    from slumberd.workers.language_models.openai_client import OpenAIClient

    try:
        async with OpenAIClient(url, secret, SECONDS) as client:
            chosen = name or _only_one(await client.models())
            answer = await client.complete(_question(chosen))
    except ModelUnavailableError as error:
        raise ModelNotCheckedError(url, error.problem) from error
    except ModelRequestError as error:
        raise ModelNotCheckedError(url, f"HTTP {error.status}: {error.problem}") from error
    if not answer.text and answer.complete:
        raise ModelNotCheckedError(url, f"{chosen!r} says nothing")
    return NewModel(url, chosen, secret)


def _only_one(names: list[str]) -> str:
    if len(names) == 1:
        return names[0]
    known = f"the server has {', '.join(names)}" if names else "the server names no model"
    raise UsageError(f"which model? {known}; name one with --model-name")


def _question(model: str) -> ChatRequest:
    settings = ModelSettings(model, ("lives_in",), parameters=_PARAMETERS)
    turn = Turn("check", "check", "user", "I live in Oslo.", 0, "ada", "helper", is_person=True)
    asked = [Question("", turn, None)]
    return ChatRequest(
        model, messages_for(settings, asked), answer_schema(settings, 1), _PARAMETERS
    )
