"""Settings, in layers: command line, environment, file, defaults. The earlier one wins.

A relative ``state_dir`` or ``rules_dir`` starts where its author stands: in the file, at the file's
own directory; on the command line and in the environment, at the working directory. The databases
and the log file start at ``state_dir``, a key file where the service manager puts secrets.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from operator import attrgetter
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, ConfigDict, Field, PrivateAttr, WithJsonSchema

from slumberd.config.validation import (
    Form,
    TemplateName,
    TimeZone,
    mistakes_of,
    problems,
    shown,
    suggestion,
)
from slumberd.config.yaml_reader import Document, Trail, dotted, read_document
from slumberd.errors import ConfigurationError, Mistake
from slumberd.model.cadence import Duration

SYSTEM_FILE = Path("/etc/slumberd/slumberd.yaml")
PREFIX = "SLUMBERD_"
CONFIG_VARIABLE = "SLUMBERD_CONFIG"
CREDENTIALS_VARIABLE = "CREDENTIALS_DIRECTORY"
"""What systemd calls the directory that `LoadCredential=` fills."""

RUNTIME_VARIABLE = "RUNTIME_DIRECTORY"
"""What systemd calls the directories that `RuntimeDirectory=` makes, joined by colons."""

Tree = Mapping[str, Any]
"""Settings by name, nested as in the file."""


def _path(value: object) -> Path:
    if not isinstance(value, str | Path) or not str(value) or "\0" in str(value):
        raise ValueError(f"a path is needed, not {shown(value)}")
    if str(value).startswith("~"):
        raise ValueError(f"'~' is not expanded in {shown(value)}; write the path out")
    return Path(value)


FilePath = Annotated[
    Path, BeforeValidator(_path), WithJsonSchema({"type": "string", "pattern": "^[^~]"})
]


class MemorySettings(Form):
    """Where episodes are.

    Attributes:
        path: The database; relative to ``state_dir``.
        synchronous: ``normal`` survives any crash of the process, ``full`` a power cut too.
        scope_mismatch: What to do with a row whose scope key and content disagree on whom it
            belongs to: set it aside (``quarantine``), or trust one of them.
        naive_timestamps: How an episode's timestamp without an offset is read: in the ``local``
            zone of the process that reads it, or in ``utc``; ``refuse`` sets such rows aside.
        future_tolerance: How far in the future an episode's timestamp may lie before it is
            reported: seconds, or a number with s, m, h or d.
        poll_seconds: Seconds between two looks for what other programs wrote; 1.6 times as long
            after 200 looks that found nothing.
    """

    path: FilePath = Path("memory.db")
    synchronous: Literal["normal", "full"] = "normal"
    scope_mismatch: Literal["quarantine", "trust_scope", "trust_episode"] = "quarantine"
    naive_timestamps: Literal["local", "utc", "refuse"] = "local"
    future_tolerance: Duration = 300.0
    poll_seconds: float = Field(default=0.05, ge=0.01, le=60, allow_inf_nan=False)


class FactsSettings(Form):
    """Where facts are, and how they are written.

    Attributes:
        path: The database; relative to ``state_dir``.
        lineage_depth: How many older assertions of a key a fact's lineage names, newest first.
        batch: How many versions of episodes one transaction takes.
        key_file: A file whose bytes key the ledger from its first row on; relative to
            $CREDENTIALS_DIRECTORY; null for none.
    """

    path: FilePath = Path("facts.db")
    lineage_depth: int = Field(default=8, ge=0, le=100)
    batch: int = Field(default=8000, ge=1, le=50_000)
    key_file: FilePath | None = None


class GraphSettings(Form):
    """The graph that rules of kind ``graph`` promote.

    Attributes:
        path: A Ladybug database, which is only read; relative to ``state_dir``; null for none.
    """

    path: FilePath | None = None


class LimitsSettings(Form):
    """What one batch may take out of the facts before it is held.

    Attributes:
        max_deletes: Facts that go without another in their place; null sets no bound.
        max_delete_fraction: By this part of all facts, 0 to 1, there may be fewer; what comes
            counts against what goes. Looked at above 100 facts; null sets no bound.
    """

    max_deletes: int | None = Field(default=4000, ge=0)
    max_delete_fraction: float | None = Field(default=0.5, ge=0, le=1, allow_inf_nan=False)


class LoggingSettings(Form):
    """What is logged, how and where.

    Attributes:
        format: ``auto`` is ``console`` on a terminal and ``json`` elsewhere.
        level: The least that is logged.
        file: Appended to; relative to ``state_dir``; null is standard error.
        scope: How the lines of deltas name user and agent: ``full`` as they are, ``hashed`` by a
            hash with a key of the fact store, ``none`` not at all.
    """

    format: Literal["auto", "json", "console"] = "auto"
    level: Literal["debug", "info", "warning", "error"] = "info"
    scope: Literal["full", "hashed", "none"] = "full"
    file: FilePath | None = None


class MetricsSettings(Form):
    """Figures for Prometheus.

    Attributes:
        textfile: Written at each heartbeat for node_exporter's textfile collector; relative to
            ``state_dir``; null for none.
    """

    textfile: FilePath | None = None


class ProvenanceSettings(Form):
    """Who is told, with where it comes from, of every fact that comes to stand.

    Attributes:
        sink: A file, or a Fathom engine in the daemon's process; null for nobody.
        template: What a promotion is called.
        file: Of the sink ``file``; relative to ``state_dir``.
        pack: Of the sink ``fathom``, a directory of rules; relative to ``state_dir``.
        timeout_seconds: How long the sink may take to answer.
        retry_seconds: The longest rest after failures, which begins with 1 s and doubles.
    """

    sink: Literal["file", "fathom"] | None = None
    template: TemplateName = "slumberd.fact"
    file: FilePath = Path("provenance.jsonl")
    pack: FilePath | None = None
    timeout_seconds: float = Field(default=10.0, ge=0.1, le=3600, allow_inf_nan=False)
    retry_seconds: float = Field(default=300.0, ge=1, le=86_400, allow_inf_nan=False)


class Settings(Form):
    """The configuration of slumberd: everything that can be set.

    Attributes:
        state_dir: The directory of all that is kept: databases and control socket. Relative to the
            file's own; absolute when loaded.
        rules_dir: The directory of rule files; it must be there. Relative to the file's own;
            absolute when loaded.
        memory: Episodes: what hosts write and slumberd reads.
        facts: Facts: what slumberd writes.
        graph: Triples that rules of kind ``graph`` promote.
        limits: The brake: a batch that would take out more than this is held.
        timezone: The IANA time zone of cron rules that name none, as ``Europe/Berlin``.
        logging: What is logged, how and where.
        metrics: Figures for Prometheus.
        provenance: Who is told of every fact that comes to stand.
        stop_seconds: Seconds that a stop waits for what is under way.
    """

    # What can be left out of a file is not required, though a Settings has it.
    model_config = ConfigDict(json_schema_extra={"required": []})

    state_dir: FilePath
    rules_dir: FilePath
    memory: MemorySettings = MemorySettings()
    facts: FactsSettings = FactsSettings()
    graph: GraphSettings = GraphSettings()
    limits: LimitsSettings = LimitsSettings()
    timezone: TimeZone = "UTC"
    logging: LoggingSettings = LoggingSettings()
    metrics: MetricsSettings = MetricsSettings()
    provenance: ProvenanceSettings = ProvenanceSettings()
    stop_seconds: float = Field(default=25.0, ge=0, le=3600, allow_inf_nan=False)

    _credentials_dir: Path | None = PrivateAttr(default=None)
    _runtime_dir: Path | None = PrivateAttr(default=None)

    @property
    def credentials_dir(self) -> Path | None:
        """Where the service manager put secrets for this process, ``$CREDENTIALS_DIRECTORY``."""
        return self._credentials_dir

    @property
    def runtime_dir(self) -> Path | None:
        """Where the service manager wants the control socket, ``$RUNTIME_DIRECTORY``."""
        return self._runtime_dir

    @property
    def memory_path(self) -> Path:
        """The database of episodes."""
        return self.state_dir / self.memory.path

    @property
    def facts_path(self) -> Path:
        """The database of facts."""
        return self.state_dir / self.facts.path

    @property
    def graph_path(self) -> Path | None:
        """The graph; None when there is none."""
        return None if self.graph.path is None else self.state_dir / self.graph.path

    @property
    def log_path(self) -> Path | None:
        """The log file; None is standard error."""
        return None if self.logging.file is None else self.state_dir / self.logging.file

    @property
    def provenance_path(self) -> Path:
        """The file that a sink of that kind appends to."""
        return self.state_dir / self.provenance.file

    @property
    def pack_path(self) -> Path | None:
        """The rules of a Fathom engine; None when it has none."""
        return None if self.provenance.pack is None else self.state_dir / self.provenance.pack

    @property
    def textfile_path(self) -> Path | None:
        """The file that Prometheus' node_exporter reads; None when there is to be none."""
        return None if self.metrics.textfile is None else self.state_dir / self.metrics.textfile


@dataclass(frozen=True, slots=True)
class _Layer:
    """What one source sets, and what is wrong with it."""

    values: Tree
    mistakes: Sequence[Mistake] = ()


def load_settings(
    config: Path | None,
    *,
    overrides: Tree,
    environ: Mapping[str, str],
    system_file: Path = SYSTEM_FILE,
    by_root: bool | None = None,
) -> Settings:
    """Load the settings from every source.

    The file is `config`, else what ``$SLUMBERD_CONFIG`` names, else `system_file` when it is
    there, else none. Without a ``state_dir`` the state is in ``$XDG_STATE_HOME/slumberd`` or
    ``~/.local/state/slumberd``; without a ``rules_dir`` the rules are in ``rules.d`` beside the
    file, or in the state directory when there is no file.

    Args:
        config: The file that the command line names.
        overrides: What the command line sets, nested as in the file; None sets nothing.
        environ: Variables, as ``SLUMBERD_FACTS__BATCH``; an empty one sets nothing.
        system_file: The machine's own file.
        by_root: Whether root loads them, who must not obey everybody; None looks.

    Raises:
        ConfigurationError: With every mistake of every source.
    """
    file, source = _found(config, environ, system_file)
    document = read_document(file, by_root=by_root) if file else _NO_FILE
    layers = [_of_document(document, source), _of_environment(environ), _of_command_line(overrides)]
    values = reduce(_over, [layer.values for layer in layers])
    if mistakes := [mistake for layer in layers for mistake in layer.mistakes]:
        raise ConfigurationError(mistakes, rules_dir=_rules_dir(values, document))
    settings = Settings.model_validate(_with_places(values, document, environ))
    if mistakes := list(_one_file_for_two(settings, document)):
        raise ConfigurationError(mistakes)
    if credentials := environ.get(CREDENTIALS_VARIABLE):
        settings._credentials_dir = Path(credentials)
    settings._runtime_dir = _runtime_dir(environ)
    return settings


def _runtime_dir(environ: Mapping[str, str]) -> Path | None:
    first = environ.get(RUNTIME_VARIABLE, "").partition(":")[0]
    return Path(first) if first and Path(first).is_dir() else None


def _rules_dir(values: Tree, document: Document) -> Path | None:
    """Return where the rules are, as far as values with mistakes say it."""
    if not document.readable or not document.file:
        return None
    found = values.get("rules_dir", Path(document.file).absolute().parent / "rules.d")
    return found if isinstance(found, Path) and found.is_dir() else None


_NO_FILE = Document("", {}, True, {}, {}, ())


def config_file(config: Path | None, environ: Mapping[str, str]) -> Path | None:
    """Return the file that counts, if any; it need not be there."""
    return _found(config, environ, SYSTEM_FILE)[0]


def _found(
    config: Path | None, environ: Mapping[str, str], system_file: Path
) -> tuple[Path | None, str]:
    """Return the file that counts, if any, and by what it was named."""
    if config is not None:
        return config, "--config"
    if named := environ.get(CONFIG_VARIABLE):
        return Path(named), CONFIG_VARIABLE
    return (system_file if _is_there(system_file) else None), ""


def _is_there(path: Path) -> bool:
    try:
        path.lstat()
    except OSError as error:  # any other is told when the file is read
        return not isinstance(error, FileNotFoundError | NotADirectoryError)
    return True


def _of_document(document: Document, source: str) -> _Layer:
    value = {} if document.value is None else document.value
    tree = value if isinstance(value, dict) else {}
    whole = replace(document, value={**_NEEDED, **tree} if tree is value else value)
    mistakes = [
        replace(mistake, path=mistake.path or ("" if mistake.line else source))
        for mistake in sorted(mistakes_of(whole, Settings), key=attrgetter("line", "column"))
    ]
    return _Layer(_anchored(tree, Path(document.file).parent), mistakes)


def _of_environment(environ: Mapping[str, str]) -> _Layer:
    known = dict(variables())
    given = {
        name: value
        for name, value in environ.items()
        if name.startswith(PREFIX) and name != CONFIG_VARIABLE and value
    }
    unknown = [
        Mistake("environment", 0, 0, name, f"unknown variable; {suggestion(name, known)}")
        for name in given
        if name not in known
    ]
    branches = [_branch(known[name], value) for name, value in given.items() if name in known]
    values: Tree = reduce(_over, branches, _NOTHING)
    names = {trail: name for name, trail in known.items()}
    return _Layer(
        _anchored(values, Path.cwd()),
        [*unknown, *_refused("environment", values, lambda trail: names[trail])],
    )


def _of_command_line(overrides: Tree) -> _Layer:
    values = _without_none(overrides)
    return _Layer(_anchored(values, Path.cwd()), _refused("command line", values, dotted))


def _refused(source: str, values: Tree, name_of: Callable[[Trail], str]) -> list[Mistake]:
    return [
        Mistake(source, 0, 0, name_of(problem.trail), problem.text)
        for problem in problems(Settings, _over(_NEEDED, values), strict=False)
    ]


def variables(form: type[Form] = Settings, trail: Trail = ()) -> Iterator[tuple[str, Trail]]:
    """Yield the environment variable of each setting, with the setting's place in a file."""
    for key, field in form.model_fields.items():
        here = (*trail, key)
        if isinstance(field.annotation, type) and issubclass(field.annotation, Form):
            yield from variables(field.annotation, here)
        else:
            yield PREFIX + "__".join(map(str, here)).upper(), here


_NOTHING: Tree = {}

# A source may leave out what only the whole must have.
_NEEDED = {"state_dir": "/", "rules_dir": "/"}


def _over(lower: Tree, upper: Tree) -> Tree:
    """Return what two layers say together; where both say something, the upper one counts."""
    both = {
        key: _over(lower[key], value)
        for key, value in upper.items()
        if isinstance(value, Mapping) and isinstance(lower.get(key), Mapping)
    }
    return {**lower, **upper, **both}


def _branch(trail: Trail, value: object) -> Tree:
    return {str(trail[0]): _branch(trail[1:], value) if trail[1:] else value}


def _without_none(tree: Tree) -> Tree:
    return {
        key: _without_none(value) if isinstance(value, Mapping) else value
        for key, value in tree.items()
        if value is not None
    }


def _anchored(values: Tree, directory: Path) -> Tree:
    """Return the values with their two directories absolute; wrong ones as they are."""
    places = {
        key: directory.absolute() / values[key]
        for key in _NEEDED
        if isinstance(values.get(key), str | Path)
    }
    return {**values, **places}


def _with_places(values: Tree, document: Document, environ: Mapping[str, str]) -> Tree:
    state_dir = values.get("state_dir") or _own_state_dir(environ)
    beside = Path(document.file).absolute().parent if document.file else state_dir
    return {"rules_dir": beside / "rules.d", **values, "state_dir": state_dir}


def _own_state_dir(environ: Mapping[str, str]) -> Path:
    base = environ.get("XDG_STATE_HOME", "")
    if base.startswith("/"):  # others are to be ignored, says the XDG specification
        return Path(base, "slumberd")
    if home := environ.get("HOME"):
        return Path(home, ".local/state/slumberd")
    problem = "is not set, and there is no HOME to put it under; name a directory"
    raise ConfigurationError([Mistake("settings", 0, 0, "state_dir", problem)])


def _one_file_for_two(settings: Settings, document: Document) -> Iterator[Mistake]:
    if settings.facts_path.resolve() == settings.memory_path.resolve():
        problem = f"'memory.path' is {str(settings.facts.path)!r} too; give each its own file"
        where = document.values.get(("facts", "path"), (0, 0))
        yield Mistake(document.file or "settings", *where, "facts.path", problem)
