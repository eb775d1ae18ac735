"""Make a state directory with a configuration, a rule and its test."""

from __future__ import annotations

import os
from pathlib import Path

from slumberd.errors import OutputExistsError

DIRECTORY_MODE, FILE_MODE = 0o700, 0o600

CONFIG = """\
# The configuration of slumberd. Relative paths start at this file. `slumberd schema config` has
# every key.
state_dir: .
rules_dir: rules.d
"""
RULE = """\
# A rule says which episodes become facts, and how often. `slumberd check` reads all rules.
rules:
  - id: preferences
    cadence: {every: 1}  # as soon as 1 episode is new; or {cron: "0 3 * * *"}
    when_filter: "(predicate IS NOT NULL AND confidence >= 0.5) OR intent IS NOT NULL"
    then_emits: [facts]
channels:
  facts:
    # A predicate holds many values: a second allergy stands beside the first. These hold one value,
    # so a newer value replaces the older one.
    values: many
    single_valued: [
      name, age, birthday, birth_year, born_in, from, grew_up_in, religion, height, handedness,
      pronouns, lives_in, works_at, job, works_in, boss, studies, studies_at, marital_status,
      partner, mother, father, children, diet,
    ]
"""
TEST = """\
# What the rules beside it are expected to do. `slumberd test` runs it.
tests:
  - name: the newest home counts, both allergies do, and a guess does not
    episodes:
      - {id: e1, subject: ada, predicate: lives_in, object: Oslo}
      - {id: e2, subject: ada, predicate: lives_in, object: Bergen}
      - {id: e3, subject: ada, predicate: lives_in, object: Rome, confidence: 0.4}
      - {id: e4, subject: ada, predicate: allergic_to, object: peanuts}
      - {id: e5, subject: ada, predicate: allergic_to, object: penicillin}
    expect:
      filtered: [e3]
      facts:
        - {id: e2, subject: ada, predicate: lives_in, object: Bergen}
        - {id: e4, subject: ada, predicate: allergic_to, object: peanuts}
        - {id: e5, subject: ada, predicate: allergic_to, object: penicillin}
"""
FILES = {
    "slumberd.yaml": CONFIG,
    "rules.d/preferences.yaml": RULE,
    "rules.d/preferences.test.yaml": TEST,
}
"""The text of each file, by its path in the directory."""


def make_state_directory(directory: Path) -> None:
    """Make a state directory that only its owner can read.

    Raises:
        OutputExistsError: The directory exists and is not empty.
    """
    _make_directories(directory)
    for name, text in FILES.items():
        _write(directory / name, text)


def _make_directories(directory: Path) -> None:
    """Make the state directory and the directory of rules.

    Raises:
        OutputExistsError: The state directory exists and is not empty.
    """
    if directory.exists() and not (directory.is_dir() and not any(directory.iterdir())):
        raise OutputExistsError(str(directory), "name a new or an empty directory")
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
