"""Find the tests of rules, and put each together with the rules that it is about."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from slumberd.casebook import Case, read_cases
from slumberd.config.rule_loader import RuleSet, load_rules
from slumberd.errors import ConfigurationError, Mistake, NoInputError, UsageError
from slumberd.filters.sandbox import check_filter
from slumberd.model.rule import ConsolidationRule
from slumberd.scheduling import cron

ENDINGS = (".test.yaml", ".test.yml")
"""How the names of files of tests end; what comes before is the name of a file of rules."""


@dataclass(frozen=True, slots=True)
class Trial:
    """A case, and what it runs on.

    Attributes:
        case: The case.
        rules: The rules that fire after each of its steps, by id.
        rule_set: All rules of the directory, for what holds of its channels.
    """

    case: Case
    rules: tuple[ConsolidationRule, ...]
    rule_set: RuleSet


def case_files(paths: Iterable[Path]) -> list[Path]:
    """Return the files of tests that paths mean: such a file, or a directory with such files.

    Raises:
        NoInputError: A path is not there, or holds no tests: nothing tried is nothing proved.
        UsageError: A path is a file of another kind.
    """
    return list(dict.fromkeys(file for path in paths for file in _files(path)))


def _files(path: Path) -> list[Path]:
    if path.is_dir():
        found = [file for file in sorted(path.iterdir()) if _holds_tests(file)]
        if not found:
            remedy = "write tests beside the rules, as rules/preferences.test.yaml has them"
            raise NoInputError(path / f"*{ENDINGS[0]}", remedy)
        return found
    if not path.exists():
        raise NoInputError(path, "name a file of tests, or a directory of rules")
    if not _holds_tests(path):
        endings = " or ".join(f"'*{ending}'" for ending in ENDINGS)
        raise UsageError(f"{str(path)!r} is no file of tests: their names end as {endings}")
    return [path]


def _holds_tests(path: Path) -> bool:
    return path.name.endswith(ENDINGS) and not path.name.startswith(".")


def prepared(files: Sequence[Path], *, timezone: str) -> list[Trial]:
    """Return the trials that files of tests ask for, in order.

    Args:
        files: The files; each is about rules of its own directory.
        timezone: Of cron rules that name none.

    Raises:
        ConfigurationError: With every mistake of the files, and of all rules beside them.
    """
    preparation = _Preparation(timezone)
    trials = [trial for file in files for trial in preparation.of(file)]
    if preparation.mistakes:
        raise ConfigurationError(preparation.mistakes)
    return trials


class _Preparation:
    """Reads files of tests, and the rules of each directory once."""

    def __init__(self, timezone: str) -> None:
        self.mistakes: list[Mistake] = []
        self._timezone = timezone
        self._rule_sets: dict[Path, RuleSet | None] = {}

    def of(self, file: Path) -> list[Trial]:
        """Return the trials of one file; what is wrong goes to the mistakes."""
        rule_set = self._rules_beside(file)
        try:
            cases = read_cases(file, None if rule_set is None else list(rule_set.sources))
            return [] if rule_set is None else [_trial(case, file, rule_set) for case in cases]
        except ConfigurationError as error:
            self.mistakes += error.mistakes
            return []

    def _rules_beside(self, file: Path) -> RuleSet | None:
        directory = file.parent
        if directory not in self._rule_sets:
            self._rule_sets[directory] = self._loaded(directory)
        return self._rule_sets[directory]

    def _loaded(self, directory: Path) -> RuleSet | None:
        try:
            return load_rules(
                directory,
                check_filter=check_filter,
                check_cron=cron.check,
                timezone=self._timezone,
            )
        except ConfigurationError as error:
            self.mistakes += error.mistakes
            return None


def _trial(case: Case, file: Path, rule_set: RuleSet) -> Trial:
    found = tuple(_rules_of(case, file, rule_set))
    rules = tuple(rule for rule in found if rule.reads_episodes)
    if found and (case.rules or not rules) and found != rules:
        graphs = ", ".join(rule.id for rule in found if not rule.reads_episodes)
        problem = f"{graphs} reads no episodes, but a graph: tests are about rules of episodes"
        raise ConfigurationError([Mistake(str(file), case.line, 0, "", problem)])
    if not rules:
        problem = f"no rule in {str(file.parent)!r} that it is about is enabled; name it in 'rules'"
        raise ConfigurationError([Mistake(str(file), case.line, 0, "", problem)])
    return Trial(case, rules, rule_set)


def _rules_of(case: Case, file: Path, rule_set: RuleSet) -> Iterator[ConsolidationRule]:
    if case.rules:
        yield from (rule for rule in rule_set.rules if rule.id in case.rules)
        return
    stem = _stem(file)
    beside = {id for id, source in rule_set.sources.items() if Path(source).stem == stem}
    yield from (
        rule for rule in rule_set.rules if rule.enabled and (rule.id in beside or not beside)
    )


def _stem(file: Path) -> str:
    return next(file.name.removesuffix(end) for end in ENDINGS if file.name.endswith(end))
