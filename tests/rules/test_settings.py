"""Settings have four strict layers; each relative path has one base directory."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from slumberd.model.errors import ConfigurationError
from slumberd.rules.settings import Settings, Tree, load_settings, variables
from slumberd.rules.yaml_reader import read_document
from tests.support.repository import ROOT

pytestmark = pytest.mark.unit

SHIPPED = ROOT / "config" / "slumberd.yaml"
NOWHERE = Path("/nonexistent/slumberd.yaml")
HOME = {"HOME": "/home/alice"}


def _load(
    config: Path | None = None,
    *,
    overrides: Mapping[str, Any] | None = None,
    environ: Mapping[str, str] = HOME,
    system_file: Path = NOWHERE,
) -> Settings:
    return load_settings(
        config, overrides=overrides or {}, environ=environ, system_file=system_file
    )


def _mistakes(config: Path | None = None, **layers: Any) -> list[str]:
    with pytest.raises(ConfigurationError) as caught:
        _load(config, **layers)
    return [str(mistake) for mistake in caught.value.mistakes]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "etc" / "slumberd.yaml"


def _write(file: Path, text: str) -> Path:
    file.parent.mkdir(exist_ok=True)
    file.write_text(text)
    return file


def _leaves(tree: Tree, trail: tuple[str, ...] = ()) -> set[tuple[str, ...]]:
    leaves: set[tuple[str, ...]] = set()
    for key, value in tree.items():
        here = (*trail, key)
        leaves |= _leaves(value, here) if isinstance(value, dict) else {here}
    return leaves


def test_shipped_file_names_every_key() -> None:
    shipped = read_document(SHIPPED).value

    assert isinstance(shipped, dict)
    assert _leaves(shipped) == {trail for _, trail in variables()}


def test_shipped_file_has_the_defaults_except_its_directories() -> None:
    shipped = _load(SHIPPED)

    places = {"state_dir": Path("/var/lib/slumberd"), "rules_dir": Path("/etc/slumberd/rules.d")}
    assert shipped == _load().model_copy(update=places)


def test_settings_without_any_source_use_the_home_directory() -> None:
    settings = _load()

    assert settings.state_dir == Path("/home/alice/.local/state/slumberd")
    assert settings.rules_dir == settings.state_dir / "rules.d"
    assert settings.memory_path == settings.state_dir / "memory.db"
    assert settings.facts_path == settings.state_dir / "facts.db"
    assert settings.log_path is None


@pytest.mark.parametrize(
    ("base", "state_dir"),
    [
        pytest.param("/xdg", "/xdg/slumberd", id="absolute"),
        pytest.param("xdg", "/home/alice/.local/state/slumberd", id="relative is ignored"),
        pytest.param("", "/home/alice/.local/state/slumberd", id="empty is ignored"),
    ],
)
def test_state_directory_follows_xdg_state_home(base: str, state_dir: str) -> None:
    settings = _load(environ={**HOME, "XDG_STATE_HOME": base})

    assert settings.state_dir == Path(state_dir)


def test_missing_home_directory_is_a_mistake() -> None:
    assert "name a directory" in _mistakes(environ={})[0]


def test_command_line_overrides_environment_overrides_file_overrides_default(file: Path) -> None:
    _write(file, "facts: {batch: 1, lineage_depth: 1}\nstop_seconds: 1\n")

    settings = _load(
        file,
        environ={**HOME, "SLUMBERD_FACTS__BATCH": "2", "SLUMBERD_FACTS__LINEAGE_DEPTH": "2"},
        overrides={"facts": {"batch": 3}},
    )

    assert settings.facts.batch == 3
    assert settings.facts.lineage_depth == 2
    assert settings.stop_seconds == 1.0
    assert settings.timezone == "UTC"


def test_omitted_option_of_the_command_line_sets_nothing(file: Path) -> None:
    _write(file, "logging: {level: debug}\n")

    settings = _load(file, overrides={"state_dir": None, "logging": {"level": None}})

    assert settings.logging.level == "debug"


def test_empty_variable_sets_nothing() -> None:
    assert _load(environ={**HOME, "SLUMBERD_TIMEZONE": ""}).timezone == "UTC"


@pytest.mark.slow
@pytest.mark.parametrize("text", ["", "# nothing\n", "---\n"])
def test_empty_file_sets_nothing(file: Path, text: str) -> None:
    settings = _load(_write(file, text))

    assert settings == _load().model_copy(update={"rules_dir": file.parent / "rules.d"})


def test_relative_directories_of_the_file_start_at_its_directory(file: Path) -> None:
    _write(file, "state_dir: state\nrules_dir: ../rules\nlogging: {file: daemon.log}\n")

    settings = _load(file)

    assert settings.state_dir == file.parent / "state"
    assert settings.rules_dir == file.parent / "../rules"
    assert settings.memory_path == file.parent / "state" / "memory.db"
    assert settings.log_path == file.parent / "state" / "daemon.log"


def test_other_relative_directories_start_at_the_working_directory(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    _write(file, "state_dir: other\n")

    settings = _load(
        file,
        overrides={"state_dir": Path("state")},
        environ={"SLUMBERD_RULES_DIR": "rules"},
    )

    assert settings.state_dir == tmp_path / "state"
    assert settings.rules_dir == tmp_path / "rules"


def test_absolute_database_path_is_kept(file: Path) -> None:
    _write(file, "memory: {path: /srv/host.db}\n")

    assert _load(file).memory_path == Path("/srv/host.db")


def test_configuration_file_is_from_command_line_then_environment_then_system(
    tmp_path: Path,
) -> None:
    ours, theirs, system = (
        _write(tmp_path / name, f"stop_seconds: {number}\n")
        for number, name in enumerate(("ours.yaml", "theirs.yaml", "system.yaml"), start=1)
    )
    environ = {**HOME, "SLUMBERD_CONFIG": str(theirs)}

    assert _load(ours, environ=environ, system_file=system).stop_seconds == 1
    assert _load(environ=environ, system_file=system).stop_seconds == 2
    assert _load(system_file=system).stop_seconds == 3


def test_mistake_of_a_missing_configuration_file_names_the_source_of_its_path() -> None:
    assert _mistakes(NOWHERE) == [f"{NOWHERE}: --config: does not exist"]
    assert _mistakes(environ={"SLUMBERD_CONFIG": str(NOWHERE)}) == [
        f"{NOWHERE}: SLUMBERD_CONFIG: does not exist"
    ]


def test_unreadable_system_file_is_a_mistake(tmp_path: Path) -> None:
    loop = tmp_path / "loop"
    loop.symlink_to("loop")

    assert "symbolic links" in _mistakes(system_file=loop)[0]


def test_settings_report_all_mistakes_of_all_sources_at_once(file: Path) -> None:
    _write(file, "rulesdir: x\nfacts: {batch: 0}\nlogging: {level: INFO, file: ~/x}\n")

    mistakes = _mistakes(
        file,
        environ={
            "SLUMBERD_FACTS__BACTH": "1",
            "SLUMBERD_FACTS__BATCH": "many",
            "SLUMBERD_STATE_DIR": "~/x",
        },
        overrides={"timezone": "Mars"},
    )

    assert mistakes == [
        f"{file}:1:1: rulesdir: unknown key 'rulesdir'; did you mean 'rules_dir'?",
        f"{file}:2:16: facts.batch: at least 1 is needed, not 0",
        f"{file}:3:18: logging.level: 'debug', 'info', 'warning' or 'error' is needed, not 'INFO'",
        f"{file}:3:30: logging.file: '~' is not expanded in '~/x'; write the path out",
        "environment: SLUMBERD_FACTS__BACTH:"
        " unknown variable; did you mean 'SLUMBERD_FACTS__BATCH'?",
        "environment: SLUMBERD_STATE_DIR: '~' is not expanded in '~/x'; write the path out",
        "environment: SLUMBERD_FACTS__BATCH: a whole number is needed, not 'many'",
        "command line: timezone: time zone 'Mars' is not known; write a name as 'Europe/Berlin'",
    ]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        pytest.param("[]", "keys with values are needed, not []", id="list"),
        pytest.param("state_dir: ~", "a path is needed, not null", id="null"),
        pytest.param("state_dir: ''", "a path is needed, not ''", id="empty path"),
        pytest.param("facts: {path: 5}", "a path is needed, not 5", id="number as path"),
        pytest.param("facts:", "keys with values are needed, not null", id="no keys"),
        pytest.param("facts: {batch: 50001}", "at most 50000 is needed", id="too large"),
        pytest.param("facts: {batch: '5'}", "a whole number is needed, not '5'", id="text"),
        pytest.param("facts: {batch: 1.5}", "a whole number is needed, not 1.5", id="fraction"),
        pytest.param("facts: {lineage_depth: 101}", "at most 100 is needed", id="too deep"),
        pytest.param("stop_seconds: true", "a number is needed, not true", id="boolean"),
        pytest.param("stop_seconds: -1", "at least 0 is needed, not -1", id="negative"),
        pytest.param("memory: {poll_seconds: 0}", "at least 0.01 is needed, not 0", id="busy"),
        pytest.param(
            "memory: {synchronous: off}",
            "'off' is a boolean to some YAML readers; 'normal' or 'full' is needed",
            id="trap of YAML",
        ),
        pytest.param("timezone: ../UTC", "time zone '../UTC' is not known", id="zone by path"),
        pytest.param("memory: {person: []}", "at least one entry is needed", id="no person"),
        pytest.param(
            "memory: {person: [' ']}", "a visible character is needed", id="person unseen"
        ),
        pytest.param(
            "memory: {person: [user, remember]}",
            "'remember' is an interface of slumberd",
            id="interface as the person",
        ),
        pytest.param("timezone: Europe", "time zone 'Europe' is not known", id="half a zone"),
    ],
)
def test_wrong_value_is_one_mistake(file: Path, text: str, problem: str) -> None:
    [mistake] = _mistakes(_write(file, text))

    assert problem in mistake


def test_one_file_for_both_stores_is_a_mistake(file: Path) -> None:
    [mistake] = _mistakes(_write(file, "facts: {path: memory.db}\n"))

    assert "give each its own file" in mistake


def test_mistake_of_a_shared_store_file_has_its_place(file: Path) -> None:
    [mistake] = _mistakes(_write(file, "facts: {path: memory.db}\n"))

    assert mistake.startswith(f"{file}:1:15: facts.path: ")


@pytest.mark.parametrize("by_root", [True, False])
def test_root_refuses_a_file_that_everybody_can_write(file: Path, by_root: bool) -> None:
    _write(file, "stop_seconds: 1\n").chmod(0o666)

    try:
        load_settings(file, overrides={}, environ=HOME, by_root=by_root)
        refused = False
    except ConfigurationError as error:
        refused = "`chmod o-w`" in str(error)

    assert refused == by_root


def test_configuration_may_be_a_link(file: Path, tmp_path: Path) -> None:
    (tmp_path / "real.yaml").write_text("stop_seconds: 1\n")
    file.parent.mkdir()
    file.symlink_to("../real.yaml")

    assert _load(file).stop_seconds == 1


def test_environment_variable_of_a_group_is_unknown() -> None:
    [mistake] = _mistakes(environ={**HOME, "SLUMBERD_LOGGING": "debug"})

    assert "did you mean 'SLUMBERD_LOGGING__" in mistake


def test_schema_requires_no_key() -> None:
    assert not Settings.model_json_schema().get("required")


@pytest.mark.parametrize(
    ("given", "found"),
    [
        pytest.param("{here}", True, id="one"),
        pytest.param("{here}:/run/other", True, id="the first of several"),
        pytest.param("{here}/gone", False, id="gone"),
        pytest.param("", False, id="none"),
    ],
)
def test_settings_read_the_runtime_directory_of_the_service_manager(
    tmp_path: Path, given: str, found: bool
) -> None:
    environ = {"HOME": "/home/alice", "RUNTIME_DIRECTORY": given.format(here=tmp_path)}

    settings = load_settings(None, overrides={}, environ=environ, system_file=Path("/nowhere"))

    assert settings.runtime_dir == (tmp_path if found else None)


def test_database_takes_the_place_of_both_files(file: Path) -> None:
    settings = _load(_write(file, "store: postgresql://db/memory\nmemory: {path: memory.db}\n"))

    assert settings.store == "postgresql://db/memory"
    assert settings.postgres.lease == 10


def test_database_may_have_several_servers(file: Path) -> None:
    address = "postgresql://me:secret@a:1,b:2/memory?target_session_attrs=read-write"

    assert _load(_write(file, f"store: '{address}'\n")).store == address


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("store: mysql://db", "begins with 'postgresql://'"),
        ("store: 'postgresql://a,b/m'", "target_session_attrs=read-write"),
        ("store: postgresql://db/m\nfacts: {path: other.db}", "remove one of them"),
        ("postgres: {lease: 2s}", "3"),
    ],
)
def test_mistake_about_a_database_is_named(file: Path, text: str, problem: str) -> None:
    [mistake] = _mistakes(_write(file, f"{text}\n"))

    assert problem in mistake
