"""Load the settings from the command line, the environment and the file; the first source wins.

A relative ``state_dir`` or ``rules_dir`` is relative to the directory of the file that sets it. On
the command line and in the environment it is relative to the working directory. Other relative
paths are relative to ``state_dir``, a key file to ``$CREDENTIALS_DIRECTORY``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from operator import attrgetter
from pathlib import Path
from typing import Any, Self

from pydantic import ConfigDict, Field, PrivateAttr

from slumberd.model.capture.episodes import Capture, ForgetWords
from slumberd.model.errors import ConfigurationError, Mistake
from slumberd.rules.settings_schema import (
    CaptureSettings,
    ErasureSettings,
    FactsSettings,
    GraphSettings,
    LanguageModelSettings,
    LimitsSettings,
    LoggingSettings,
    MemorySettings,
    MetricsSettings,
    PostgresSettings,
    ProvenanceSettings,
    RetentionSettings,
    SearchSettings,
    ServeSettings,
)
from slumberd.rules.validation import (
    DatabaseAddress,
    FilePath,
    Form,
    FunctionName,
    TimeZone,
    mistakes_of,
    problems,
    suggestion,
)
from slumberd.rules.yaml_reader import Document, Trail, dotted_path, read_document

SYSTEM_FILE = Path("/etc/slumberd/slumberd.yaml")
PREFIX = "SLUMBERD_"
CONFIG_VARIABLE = "SLUMBERD_CONFIG"
CREDENTIALS_VARIABLE = "CREDENTIALS_DIRECTORY"
"""The variable in which systemd names the directory of `LoadCredential=`."""

RUNTIME_VARIABLE = "RUNTIME_DIRECTORY"
"""The variable in which systemd names the directories of `RuntimeDirectory=`, colons between."""

Tree = Mapping[str, Any]
"""Settings by name, nested as in the file."""


class Settings(Form):
    """The configuration of slumberd.

    Attributes:
        state_dir: The directory of the databases and the control socket. A relative path is
            relative to the directory of the configuration file. Default:
            ``$XDG_STATE_HOME/slumberd``, else ``~/.local/state/slumberd``.
        rules_dir: The directory of the rule files, which must exist. A relative path is relative to
            the directory of the configuration file. Default: ``rules.d`` in that directory, or in
            ``state_dir`` when there is no configuration file.
        store: The address of a PostgreSQL database that holds episodes and facts in place of the
            two files, such as ``postgresql://slumberd@db.example.com/memory``; it needs the extra
            ``postgres``. null (default) means the files.
        host_store: A Python function that makes the host's own memory store and fact store, such as
            ``python:my_host.stores:make_stores``. The daemon then consolidates these stores, and
            the other commands on episodes, facts and their ledger do not work. null (default) means
            slumberd's own stores.
        postgres: How slumberd uses that database.
        memory: Where slumberd reads episodes, and how it reads them.
        facts: Where slumberd writes facts, and how it writes them.
        graph: The graph that rules of kind ``graph`` promote.
        capture: What slumberd leaves out of texts before they become episodes.
        limits: The deletion limits: a batch that exceeds one awaits approval.
        retention: What slumberd deletes that its stages have archived; by default nothing.
        erasure: How slumberd removes the bytes of what ``slumberd forget`` erases.
        search: How ``slumberd search`` and ``slumberd context`` find episodes and facts.
        language_model: The server that the stage ``extract: {with: openai}`` of rules asks.
        timezone: The IANA time zone of cron rules that name none, such as ``Europe/Berlin``.
            Default: ``UTC``.
        logging: What the daemon logs, in which format, and where.
        metrics: Metrics for Prometheus.
        provenance: The sink that receives every promotion of a fact, with its provenance.
        serve: The HTTP interface; it needs the extra ``serve``.
        stop_seconds: How many seconds a stop waits for running work before it cancels it, 0 to
            3600. A cancelled batch is rolled back and repeated after the next start. Default: 25.
    """

    # A file may omit these keys, although every Settings has them.
    model_config = ConfigDict(json_schema_extra={"required": []})

    state_dir: FilePath
    rules_dir: FilePath
    store: DatabaseAddress | None = None
    host_store: FunctionName | None = None
    # A default section needs no validation, so its validator is not built.
    postgres: PostgresSettings = PostgresSettings.model_construct()
    memory: MemorySettings = MemorySettings.model_construct()
    facts: FactsSettings = FactsSettings.model_construct()
    graph: GraphSettings = GraphSettings.model_construct()
    capture: CaptureSettings = CaptureSettings.model_construct()
    limits: LimitsSettings = LimitsSettings.model_construct()
    retention: RetentionSettings = RetentionSettings.model_construct()
    erasure: ErasureSettings = ErasureSettings.model_construct()
    search: SearchSettings = SearchSettings.model_construct()
    language_model: LanguageModelSettings = LanguageModelSettings.model_construct()
    timezone: TimeZone = "UTC"
    logging: LoggingSettings = LoggingSettings.model_construct()
    metrics: MetricsSettings = MetricsSettings.model_construct()
    provenance: ProvenanceSettings = ProvenanceSettings.model_construct()
    serve: ServeSettings = ServeSettings.model_construct()
    stop_seconds: float = Field(default=25.0, ge=0, le=3600, allow_inf_nan=False)

    _credentials_dir: Path | None = PrivateAttr(default=None)
    _runtime_dir: Path | None = PrivateAttr(default=None)

    @property
    def credentials_dir(self) -> Path | None:
        """The directory of secrets for this process, ``$CREDENTIALS_DIRECTORY``."""
        return self._credentials_dir

    @property
    def runtime_dir(self) -> Path | None:
        """The directory of the control socket, the first of ``$RUNTIME_DIRECTORY``."""
        return self._runtime_dir

    @property
    def shard(self) -> int:
        """The shard of the database on which this process works."""
        return self.postgres.shard or 0

    @property
    def are_rules_published(self) -> bool:
        """Whether the rules come from the database, in place of ``rules_dir``."""
        return self.store is not None and self.postgres.rules == "published"

    @property
    def capture_rules(self) -> Capture:
        """What the section ``capture`` says of new episodes."""
        words = ForgetWords(self.capture.forget_this, self.capture.forget_that)
        return Capture(self.capture.secrets, words, self.memory.person)

    def of_shard(self, shard: int | None) -> Self:
        """Return these settings for one shard of the database; None for no shard in particular."""
        postgres = self.postgres.model_copy(update={"shard": shard})
        return self.model_copy(update={"postgres": postgres})

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
        """The graph database; None when no graph is configured."""
        return None if self.graph.path is None else self.state_dir / self.graph.path

    @property
    def host_record_path(self) -> Path:
        """The record of what was applied to a host's own fact store."""
        return self.state_dir / "host.db"

    @property
    def stages_path(self) -> Path:
        """The notes of the stages of rules on the stores of this process."""
        name = "stages.db" if self.store is None else f"stages-{self.shard}.db"
        return self.state_dir / name

    @property
    def log_path(self) -> Path | None:
        """The log file; None means standard error."""
        return None if self.logging.file is None else self.state_dir / self.logging.file

    @property
    def provenance_path(self) -> Path:
        """The file that the sink ``file`` appends to."""
        return self.state_dir / self.provenance.file

    @property
    def pack_path(self) -> Path | None:
        """The rules of the sink ``fathom``; None when it has none."""
        return None if self.provenance.pack is None else self.state_dir / self.provenance.pack

    @property
    def http_socket_path(self) -> Path | None:
        """The unix socket of the HTTP interface; None without one."""
        if self.serve.socket is None:
            return None
        return (self.runtime_dir or self.state_dir) / self.serve.socket

    @property
    def textfile_path(self) -> Path | None:
        """The file that node_exporter reads; None when none is configured."""
        return None if self.metrics.textfile is None else self.state_dir / self.metrics.textfile


@dataclass(frozen=True, slots=True)
class _Layer:
    """The values of one source, and its mistakes."""

    values: Tree
    mistakes: Sequence[Mistake] = ()


def load_settings(
    config: Path | None,
    *,
    overrides: Tree,
    environ: Mapping[str, str],
    system_file: Path = SYSTEM_FILE,
    by_root: bool | None = None,
    state_dir: Path | None = None,
) -> Settings:
    """Load the settings from every source.

    The file is `config`, else the file that ``$SLUMBERD_CONFIG`` names, else `system_file` if it
    exists. The docstring of `Settings` says where the two directories are by default.

    Args:
        config: The file that the command line names.
        overrides: The values of the command line, nested as in the file; None sets nothing.
        environ: Variables such as ``SLUMBERD_FACTS__BATCH``; an empty one sets nothing.
        system_file: The configuration file of the machine.
        by_root: Whether root loads the file. For root, a file that everybody can write is a
            mistake. None asks the process.
        state_dir: The state directory where no source names one; None for that of the user.

    Raises:
        ConfigurationError: A source has mistakes; the error lists all of them.
    """
    file, source = _select_file(config, environ, system_file)
    document = read_document(file, by_root=by_root) if file else _EMPTY_DOCUMENT
    layers = [
        _file_layer(document, source),
        _environment_layer(environ),
        _command_line_layer(overrides),
    ]
    values = reduce(_merge, [layer.values for layer in layers])
    if mistakes := [mistake for layer in layers for mistake in layer.mistakes]:
        raise ConfigurationError(mistakes, rules_dir=_rules_dir(values, document))
    place = values.get("state_dir") or state_dir or _default_state_dir(environ)
    settings = Settings.model_validate(_add_directories(values, document, place))
    if mistakes := list(_check_store(settings, document)):
        raise ConfigurationError(mistakes)
    if credentials := environ.get(CREDENTIALS_VARIABLE):
        settings._credentials_dir = Path(credentials)
    settings._runtime_dir = _runtime_dir(environ)
    return settings


def _runtime_dir(environ: Mapping[str, str]) -> Path | None:
    first = environ.get(RUNTIME_VARIABLE, "").partition(":")[0]
    return Path(first) if first and Path(first).is_dir() else None


def _rules_dir(values: Tree, document: Document) -> str | None:
    """Return the directory of rules, as far as values with mistakes name it."""
    if not document.readable or not document.file:
        return None
    found = values.get("rules_dir", Path(document.file).absolute().parent / "rules.d")
    return str(found) if isinstance(found, Path) and found.is_dir() else None


_EMPTY_DOCUMENT = Document("", {}, True, {}, {}, ())


def config_file(config: Path | None, environ: Mapping[str, str]) -> Path | None:
    """Return the configuration file that is used, if any; it may be missing."""
    return _select_file(config, environ, SYSTEM_FILE)[0]


def _select_file(
    config: Path | None, environ: Mapping[str, str], system_file: Path
) -> tuple[Path | None, str]:
    """Return the configuration file that is used, if any, and the source that names it."""
    if config is not None:
        return config, "--config"
    if named := environ.get(CONFIG_VARIABLE):
        return Path(named), CONFIG_VARIABLE
    return (system_file if _exists(system_file) else None), ""


def _exists(path: Path) -> bool:
    try:
        path.lstat()
    except OSError as error:  # reading the file reports any other error
        return not isinstance(error, FileNotFoundError | NotADirectoryError)
    return True


def _file_layer(document: Document, source: str) -> _Layer:
    value = {} if document.value is None else document.value
    tree = value if isinstance(value, dict) else {}
    whole = replace(document, value={**_PLACEHOLDERS, **tree} if tree is value else value)
    mistakes = [
        replace(mistake, path=mistake.path or ("" if mistake.line else source))
        for mistake in sorted(mistakes_of(whole, Settings), key=attrgetter("line", "column"))
    ]
    return _Layer(_resolve_directories(tree, Path(document.file).parent), mistakes)


def _environment_layer(environ: Mapping[str, str]) -> _Layer:
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
    subtrees = [_subtree(known[name], value) for name, value in given.items() if name in known]
    values: Tree = reduce(_merge, subtrees, _EMPTY_TREE)
    names = {trail: name for name, trail in known.items()}
    return _Layer(
        _resolve_directories(values, Path.cwd()),
        [*unknown, *_find_mistakes("environment", values, lambda trail: names[trail])],
    )


def _command_line_layer(overrides: Tree) -> _Layer:
    values = _drop_none(overrides)
    return _Layer(
        _resolve_directories(values, Path.cwd()),
        _find_mistakes("command line", values, dotted_path),
    )


def _find_mistakes(source: str, values: Tree, name_of: Callable[[Trail], str]) -> list[Mistake]:
    return [
        Mistake(source, 0, 0, name_of(problem.trail), problem.text)
        for problem in problems(Settings, _merge(_PLACEHOLDERS, values), strict=False)
    ]


def variables(form: type[Form] = Settings, trail: Trail = ()) -> Iterator[tuple[str, Trail]]:
    """Yield the environment variable of each setting, with the setting's place in a file."""
    for key, field in form.model_fields.items():
        here = (*trail, key)
        if isinstance(field.annotation, type) and issubclass(field.annotation, Form):
            yield from variables(field.annotation, here)
        else:
            yield PREFIX + "__".join(map(str, here)).upper(), here


_EMPTY_TREE: Tree = {}

# One source may omit these keys; only all sources together must set them.
_PLACEHOLDERS = {"state_dir": "/", "rules_dir": "/"}


def _merge(lower: Tree, upper: Tree) -> Tree:
    """Return the union of two layers; a value of the upper layer overrides the lower one."""
    both = {
        key: _merge(lower[key], value)
        for key, value in upper.items()
        if isinstance(value, Mapping) and isinstance(lower.get(key), Mapping)
    }
    return {**lower, **upper, **both}


def _subtree(trail: Trail, value: object) -> Tree:
    return {str(trail[0]): _subtree(trail[1:], value) if trail[1:] else value}


def _drop_none(tree: Tree) -> Tree:
    return {
        key: _drop_none(value) if isinstance(value, Mapping) else value
        for key, value in tree.items()
        if value is not None
    }


def _resolve_directories(values: Tree, directory: Path) -> Tree:
    """Return the values with both directories absolute; invalid ones stay unchanged."""
    places = {
        key: directory.absolute() / values[key]
        for key in _PLACEHOLDERS
        if isinstance(values.get(key), str | Path)
    }
    return {**values, **places}


def _add_directories(values: Tree, document: Document, state_dir: Path) -> Tree:
    beside = Path(document.file).absolute().parent if document.file else state_dir
    return {"rules_dir": beside / "rules.d", **values, "state_dir": state_dir}


def _default_state_dir(environ: Mapping[str, str]) -> Path:
    base = environ.get("XDG_STATE_HOME", "")
    if base.startswith("/"):  # the XDG specification ignores relative paths
        return Path(base, "slumberd")
    if home := environ.get("HOME"):
        return Path(home, ".local/state/slumberd")
    problem = "is not set, and there is no HOME to put it under; name a directory"
    raise ConfigurationError([Mistake("settings", 0, 0, "state_dir", problem)])


_HOST_KEYS = frozenset(
    {"state_dir", "rules_dir", "host_store", "timezone", "logging", "stop_seconds"}
)
"""The keys that have an effect on a host's own store."""


def _check_host_store(settings: Settings, document: Document) -> Iterator[Mistake]:
    for key, field in Settings.model_fields.items():
        if key not in _HOST_KEYS and getattr(settings, key) != field.default:
            problem = "is for slumberd's own stores, and 'host_store' names others; remove one"
            where = document.keys.get((key,), (0, 0))
            yield Mistake(document.file or "settings", *where, key, problem)


def _check_store(settings: Settings, document: Document) -> Iterator[Mistake]:
    if settings.host_store is not None:
        yield from _check_host_store(settings, document)
    if settings.store is not None:
        for group, usual in (("memory", MemorySettings()), ("facts", FactsSettings())):
            if getattr(settings, group).path != usual.path:
                problem = "names a file, and 'store' a database; remove one of them"
                where = document.values.get((group, "path"), (0, 0))
                yield Mistake(document.file or "settings", *where, f"{group}.path", problem)
        return
    if settings.postgres.rules == "published":
        problem = "is 'published', and 'store' names no database that could hold the rules"
        where = document.values.get(("postgres", "rules"), (0, 0))
        yield Mistake(document.file or "settings", *where, "postgres.rules", problem)
    if settings.facts_path.resolve() == settings.memory_path.resolve():
        problem = f"'memory.path' is {str(settings.facts.path)!r} too; give each its own file"
        where = document.values.get(("facts", "path"), (0, 0))
        yield Mistake(document.file or "settings", *where, "facts.path", problem)
