"""Check rules for their publication in a database."""

from __future__ import annotations

from pathlib import Path

from slumberd.daemon.rules import rules_of_files, rules_of_texts
from slumberd.model.rule import RulesToPublish
from slumberd.rules.rule_loader import read_rule_texts
from slumberd.rules.settings import Settings


def rules_to_publish(
    settings: Settings, directory: Path, *, by: str, reason: str
) -> RulesToPublish:
    """Check the rules of a directory, and return them for their publication.

    Args:
        directory: The directory of rule files.
        by: Who publishes them.
        reason: Why; empty without a reason.

    Raises:
        ConfigurationError: With every mistake of every rule file.
    """
    rules_of_files(settings, directory)
    texts = read_rule_texts(directory)
    # A file may have changed since it was checked, and other hosts load these texts.
    rules = rules_of_texts(settings, texts, str(directory))
    return RulesToPublish(rules.content_hash, texts, by, reason)
