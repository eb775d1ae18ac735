"""Write the parts of the documentation that come from the code: ``python -m docs.generate``.

A page marks such a part with two comments; this script replaces the text between them::

    <!-- generated: events -->
    <!-- end of generated -->

`tests/documentation/test_pages.py` checks that the committed pages are current.
"""

from __future__ import annotations

import inspect
import json
import re
import tomllib
import typing
from collections.abc import Callable, Iterator, Mapping, Sequence
from html import escape
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

import orjson
import typer

import slumberd
from slumberd.cli.json_schemas import schema_of
from slumberd.cli.registry import ENTRIES
from slumberd.logs.event_catalogue import CATALOGUE
from slumberd.model import errors
from slumberd.model.episode import INTERFACES
from slumberd.model.health import KINDS
from slumberd.operations.forms import RequestForm
from slumberd.operations.handlers import Operation
from slumberd.operations.registry import OPERATIONS
from slumberd.rules.docstrings import describe_attributes
from slumberd.rules.filters.checks import COLUMNS
from slumberd.rules.pattern_schema import PatternFile, PatternTestFile
from slumberd.rules.rule_schema import GraphRuleForm, RuleFile, RuleForm
from slumberd.rules.settings import PREFIX, Settings
from slumberd.tools.rule_testing.case_schema import CaseFile
from slumberd.web.http.routes import PROTOCOL_FIELDS, ROUTES

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PICTURE = DOCS / "explanation" / "packages.svg"
_PART = re.compile(r"(<!-- generated: ([\w-]+) -->\n).*?(<!-- end of generated -->\n)", re.DOTALL)

Schema = Mapping[str, Any]
QUOTE = '"'


def outdated(folder: Path = DOCS) -> dict[Path, str]:
    """Return the text of each page of a folder that is not current, and of the picture."""
    texts = {page: _current(page.read_text("utf-8")) for page in sorted(folder.rglob("*.md"))}
    texts[PICTURE] = packages_picture()
    return {
        path: text
        for path, text in texts.items()
        if not path.exists() or path.read_text("utf-8") != text
    }


def parts_of(text: str) -> list[str]:
    """Return the names of the generated parts of a page."""
    return [name for _, name, _ in _PART.findall(text)]


def _current(text: str) -> str:
    def part(found: re.Match[str]) -> str:
        return f"{found[1]}\n{PARTS[found[2]]().strip()}\n\n{found[3]}"

    return _PART.sub(part, text)


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a table in Markdown."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(map(_cell, line))} |" for line in lines) + "\n"


def _cell(text: str) -> str:
    return " ".join(text.replace("``", "`").replace("|", "\\|").split())


# Commands


SHARED = ("--json", "--config, -c FILE", "--state-dir DIR")
"""Options that most commands take; the page explains them once."""


class Option(NamedTuple):
    """One option or argument of a command.

    Attributes:
        usage: As a person writes it, such as ``--limit N``.
        help: What it does.
        is_argument: Whether it has no name on the command line.
    """

    usage: str
    help: str
    is_argument: bool


def commands() -> str:
    """Return a section for each command, with its options and examples."""
    return "\n".join(_command(*command) for command in every_command())


def every_command() -> Iterator[tuple[str, Callable[..., object], Sequence[str]]]:
    """Yield each command: its name, its function, and calls of it."""
    for entry in ENTRIES:
        module, _, name = entry.home.partition(":")
        found = getattr(import_module(f"slumberd.cli.commands.{module}"), name)
        if isinstance(found, typer.Typer):
            alone = found.registered_callback
            if alone is not None and alone.callback is not None and alone.invoke_without_command:
                yield entry.name, alone.callback, _calls(alone.epilog)
            for command in found.registered_commands:
                if command.hidden:
                    continue
                assert command.callback is not None
                yield f"{entry.name} {command.name}", command.callback, _calls(command.epilog)
        else:
            yield entry.name, found, entry.examples


def _calls(epilog: str | None) -> list[str]:
    """Return the calls in the epilog of a help text."""
    return [line for line in (epilog or "").splitlines() if "slumberd " in line]


def _command(name: str, function: Callable[..., object], calls: Sequence[str]) -> str:
    options = list(options_of(function))
    arguments = [option for option in options if option.is_argument]
    usage = " ".join(
        [
            "slumberd",
            name,
            *(argument.usage for argument in arguments),
            *["[OPTIONS]"] * bool(options),
        ]
    )
    own = [option for option in options if option.usage not in SHARED]
    rows = [[f"`{option.usage}`", option.help] for option in own]
    shared = [f"`{option.usage}`" for option in options if option.usage in SHARED]
    pieces = [
        f"## {name}\n",
        f"```text\n{usage}\n```\n",
        f"{inspect.getdoc(function)}\n",
        table(["argument or option", "meaning"], rows) if rows else "",
        f"Shared options: {', '.join(shared)}.\n" if shared else "",
        "```text\n" + "\n".join(call.strip() for call in calls) + "\n```\n" if calls else "",
    ]
    return "\n".join(piece for piece in pieces if piece)


def options_of(function: Callable[..., object]) -> Iterator[Option]:
    """Yield the options and arguments of a command."""
    hints = typing.get_type_hints(function, include_extras=True)
    for parameter in inspect.signature(function).parameters.values():
        hint = hints[parameter.name]
        if typing.get_origin(hint) is Annotated:
            kind, info = typing.get_args(hint)[:2]
            yield _option(parameter, kind, info)


def _option(parameter: inspect.Parameter, kind: object, info: Any) -> Option:  # noqa: ANN401
    default = parameter.default
    name = parameter.name.rstrip("_")
    help_text = f"{info.help or ''} {_range_of(info)} {_default_of(default, info)}"
    if isinstance(info, typer.models.ArgumentInfo):
        return Option(info.metavar or name.upper(), help_text, is_argument=True)
    # The first name is passed where a default could be.
    first = [info.default] if str(info.default).startswith("-") else []
    spelled = ", ".join([*first, *info.param_decls] or [f"--{name.replace('_', '-')}"])
    value = "" if _is_flag(kind) else f" {info.metavar or _value_of(kind)}"
    needed = " Required." if default is inspect.Parameter.empty else ""
    return Option(f"{spelled}{value}", f"{help_text}{needed}", is_argument=False)


def _is_flag(kind: object) -> bool:
    return kind is bool


def _value_of(kind: object) -> str:
    choices = [str(choice) for part in _parts_of(kind) for choice in typing.get_args(part)]
    if choices and any(typing.get_origin(part) is Literal for part in _parts_of(kind)):
        return "|".join(choices)
    names = {int: "N", float: "X", Path: "PATH"}
    return next((names[part] for part in _parts_of(kind) if part in names), "TEXT")


def _parts_of(kind: object) -> tuple[object, ...]:
    return typing.get_args(kind) if type(None) in typing.get_args(kind) else (kind,)


def _range_of(info: Any) -> str:  # noqa: ANN401 # an option or an argument
    bounds = _bounds(info.min, info.max)
    return f"({', '.join(bounds)})" if bounds else ""


def _bounds(low: float | None, high: float | None) -> list[str]:
    ends = (("at least", low), ("at most", high))
    return [f"{word} {number:,}" for word, number in ends if number is not None]


def _default_of(default: object, info: Any) -> str:  # noqa: ANN401 # an option or an argument
    plain = isinstance(default, int | float | str) and not isinstance(default, bool)
    return f"Default: `{default}`." if plain and info.show_default else ""


# Configuration and rules


def configuration() -> str:
    """Return every key of the configuration, in a table for each group."""
    schema = schema_of(Settings)
    groups = {n: s for n, s in schema["properties"].items() if "properties" in s}
    alone = {n: s for n, s in schema["properties"].items() if n not in groups}
    parts = [f"## Top level\n\n{_settings_table('', alone)}"]
    parts += [
        f"## {name}\n\n{_plain(group['description'])}\n\n"
        f"{_settings_table(f'{name}.', group['properties'])}"
        for name, group in groups.items()
    ]
    return "\n".join(parts)


def _settings_table(prefix: str, keys: Mapping[str, Schema]) -> str:
    rows = [
        [
            f"`{prefix}{key}`",
            _takes(schema),
            _default_in(schema),
            _plain(schema["description"]),
            f"`{PREFIX}{(prefix + key).upper().replace('.', '__')}`",
        ]
        for key, schema in keys.items()
    ]
    return table(["key", "takes", "default", "meaning", "environment"], rows)


def _default_in(schema: Schema) -> str:
    return f"`{json.dumps(schema['default'])}`" if "default" in schema else ""


def _plain(text: str) -> str:
    return text.replace("``", "`")


def _takes(schema: Schema) -> str:
    if "enum" in schema:
        return ", ".join(f"`{json.dumps(value).strip(QUOTE)}`" for value in schema["enum"])
    if "anyOf" in schema:
        return " or ".join(dict.fromkeys(_takes(choice) for choice in schema["anyOf"]))
    words = {"string": "text", "integer": "whole number", "array": "list"}
    kind = str(schema.get("type", "any value"))
    word = words.get(kind, kind)
    above = [f"above {schema['exclusiveMinimum']:,}"] if "exclusiveMinimum" in schema else []
    bounds = ", ".join([*above, *_bounds(schema.get("minimum"), schema.get("maximum"))])
    return f"{word}, {bounds}" if bounds else word


def rule_keys() -> str:
    """Return the keys of a rule file, of both kinds of rules, and of the objects in them."""
    sections = [
        *_sections("Rule files", schema_of(RuleFile), deep=False),
        *_sections("Rules of episodes", schema_of(RuleForm)),
        *_sections("Rules of graphs", schema_of(GraphRuleForm), deep=False),
    ]
    return "\n".join(sections)


def pattern_keys() -> str:
    """Return the keys of a pattern file."""
    return "\n".join(_sections("Pattern files", schema_of(PatternFile)))


def pattern_test_keys() -> str:
    """Return the keys of a file of tests of patterns."""
    return "\n".join(_sections("Tests of patterns", schema_of(PatternTestFile)))


def test_keys() -> str:
    """Return the keys of a file of tests."""
    return "\n".join(_sections("Test files", schema_of(CaseFile)))


def _sections(title: str, schema: Schema, path: str = "", *, deep: bool = True) -> Iterator[str]:
    """Yield a table of keys; with `deep` also a table for each object below with other keys."""
    keys = schema["properties"]
    required = schema.get("required", ())
    rows = [
        [
            f"`{path}{key}`",
            "required" if key in required else _default_in(value),
            _takes(value),
            _plain(value["description"]),
        ]
        for key, value in keys.items()
    ]
    head = ["key", "default", "takes", "meaning"]
    yield f"### {title}\n\n{_plain(schema['description'])}\n\n{table(head, rows)}"
    for key, inner in _new_objects(keys) if deep else ():
        yield from _sections(f"`{path}{key}`", inner, f"{path}{key}.")


def _new_objects(keys: Mapping[str, Schema]) -> Iterator[tuple[str, Schema]]:
    """Yield the keys of objects, or of lists of objects; objects with equal keys only once."""
    known: list[set[str]] = []
    for key, schema in keys.items():
        candidates = [
            schema,
            schema.get("items", {}),
            *schema.get("anyOf", ()),
            *_of_any_key(schema),
        ]
        for inner in candidates:
            if "properties" in inner and {*inner["properties"]} not in known:
                if not {*inner["properties"]} < {*keys}:
                    yield key, inner
                known.append({*inner["properties"]})


def _of_any_key(schema: Schema) -> list[Schema]:
    """Return the schema of the entries of lists that have any key; none for another object."""
    values = schema.get("additionalProperties")
    return [values["items"]] if isinstance(values, dict) and "items" in values else []


def filter_columns() -> str:
    """Return the columns of a filter."""
    return f"The columns are {_names(COLUMNS)}."


def interfaces() -> str:
    """Return the names of interfaces and formats that are no speakers."""
    return f"Such a `source_node` is one of {_names(sorted(INTERFACES))}."


# Events, errors, findings


def events() -> str:
    """Return every event of the log."""
    rows = [
        [f"`{kind.name}`", " or ".join(kind.levels), kind.meaning, _names(kind.fields)]
        for kind in CATALOGUE.values()
    ]
    return table(["event", "level", "meaning", "fields"], rows)


def _names(fields: Sequence[str] | Mapping[str, object]) -> str:
    return ", ".join(f"`{name}`" for name in fields)


def error_classes() -> str:
    """Return every error class with its exit code, its base and its fields."""
    types = sorted(_error_types(), key=lambda error: error.__name__)
    rows = []
    for error in types:
        summary, fields = describe_attributes(error)
        own = ", ".join(f"`{name}`" for name in fields if name not in ("exit_code", "see"))
        rows.append([f"`{error.__name__}`", str(error.exit_code), _base_of(error), summary, own])
    return table(["error", "exit code", "is a", "meaning", "fields"], rows)


def _error_types() -> list[type[errors.SlumberdError]]:
    return [
        value for name, value in vars(errors).items() if _is_error(value) and name == value.__name__
    ]


def _base_of(error: type) -> str:
    return " ".join(f"`{base.__name__}`" for base in error.__bases__)


def findings() -> str:
    """Return every finding of `slumberd doctor`."""
    rows = [[f"`{name}`", severity, well] for name, (severity, well) in KINDS.items()]
    return table(["finding", "severity", "is absent when"], rows)


# Python


def public_names() -> str:
    """Return every public name that is not an error class."""
    names = [name for name in slumberd.__all__ if not _is_error(getattr(slumberd, name))]
    rows = [[f"`{name}`", _summary(getattr(slumberd, name))] for name in names]
    return table(["name", "is"], rows)


def _is_error(value: object) -> bool:
    return isinstance(value, type) and issubclass(value, errors.SlumberdError)


def _summary(value: object) -> str:
    if isinstance(value, type):
        return describe_attributes(value)[0]
    if inspect.isfunction(value):
        return _first_line(value)
    return "A union of types, for annotations and `pydantic.TypeAdapter`."


METHODS = {
    "SQLiteMemoryStore": ("put", "put_many", "recent", "consolidate", "health", "migrate", "close"),
    "SQLiteFactStore": (
        "query", "pin", "unpin", "apply_delta", "apply_deltas", "next_window", "correct", "retract",
        "why", "verify", "health", "migrate", "close",
    ),
    "FactPattern": ("following",),
}  # fmt: skip
"""The methods that programs may rely on."""


def public_methods() -> str:
    """Return the methods that programs may rely on, by class."""
    return "\n".join(_methods_of(name, methods) for name, methods in METHODS.items())


def _methods_of(name: str, methods: Sequence[str]) -> str:
    functions = [getattr(getattr(slumberd, name), method) for method in methods]
    rows = [
        [f"`{method.__name__}({', '.join(_parameters_of(method))})`", _first_line(method)]
        for method in functions
    ]
    return f"### {name}\n\n{table(['method', 'does'], rows)}"


def _parameters_of(function: Callable[..., object]) -> Iterator[str]:
    starred = False
    for parameter in list(inspect.signature(function).parameters.values())[1:]:
        if parameter.kind is parameter.KEYWORD_ONLY and not starred:
            starred = True
            yield "*"
        starred = starred or parameter.kind is parameter.VAR_POSITIONAL
        yield f"{_STARS.get(parameter.kind, '')}{parameter.name}{_shown_default(parameter)}"


_STARS: Mapping[object, str] = {
    inspect.Parameter.VAR_POSITIONAL: "*",
    inspect.Parameter.VAR_KEYWORD: "**",
}


def _shown_default(parameter: inspect.Parameter) -> str:
    default = parameter.default
    if default is parameter.empty:
        return ""
    return f"={default!r}" if isinstance(default, int | str | None) else "=..."


def _first_line(function: Callable[..., object]) -> str:
    return (inspect.getdoc(function) or "").partition("\n")[0]


# Packages


def layers() -> list[list[str]]:
    """Return the packages of the import contract, in a list for each layer, top to bottom."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    contracts = project["tool"]["importlinter"]["contracts"]
    [layers_contract] = [contract for contract in contracts if contract["id"] == "layers"]
    return [layer.split(" | ") for layer in layers_contract["layers"]]


WIDTH, ROW, BOX, GAP = 760, 56, 38, 10


def packages_picture() -> str:
    """Return the layers of packages as a picture in SVG."""
    rows = layers()
    height = ROW * len(rows) + GAP
    boxes = "\n".join(_row_of_boxes(row, number) for number, row in enumerate(rows))
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img"\n'
        '     font-family="sans-serif" font-size="14" text-anchor="middle">\n'
        "<title>The packages of slumberd: each row imports only from rows below it</title>\n"
        f'<rect width="{WIDTH}" height="{height}" fill="#ffffff"/>\n{boxes}\n</svg>\n'
    )


def _row_of_boxes(names: Sequence[str], number: int) -> str:
    width = (WIDTH - GAP * (len(names) + 1)) / len(names)
    top = GAP + number * ROW
    return "\n".join(
        _box(name, GAP + place * (width + GAP), top, width) for place, name in enumerate(names)
    )


def _box(name: str, left: float, top: int, width: float) -> str:
    return (
        f'<rect x="{left:.0f}" y="{top}" width="{width:.0f}" height="{BOX}" rx="5"'
        ' fill="#e8eaf6" stroke="#3f51b5"/>\n'
        f'<text x="{left + width / 2:.0f}" y="{top + 24}" fill="#1a237e">{escape(name)}</text>'
    )


def package_summaries() -> str:
    """Return the summary of each package's docstring, top to bottom."""
    rows = []
    for row in layers():
        for name in row:
            module = import_module(f"slumberd.{name}")
            kind = "package" if hasattr(module, "__path__") else "module"
            summary = (inspect.getdoc(module) or "").partition("\n\n")[0]
            rows.append([f"`{name}`", kind, summary])
    return table(["name", "is a", "does"], rows)


# Operations


def operations() -> str:
    """Return a section for each operation, with its paths, right, fields and errors."""
    return "\n".join(map(_operation, OPERATIONS.values()))


def _operation(operation: Operation[RequestForm]) -> str:
    paths = [
        f"`{route.method} {route.public_path}`"
        for route in ROUTES
        if route.operation.name == operation.name
    ]
    changes = "changes nothing" if operation.read_only else "writes"
    again = "the same request again changes nothing more" if operation.idempotent else ""
    errors = ", ".join(f"`{error.__name__}`" for error in operation.errors) or "none of its own"
    fields = [name for name in operation.form.model_fields if name not in PROTOCOL_FIELDS]
    rows = [
        ("over HTTP", ", ".join(paths)),
        ("right", f"`{operation.right}`"),
        ("effect", "; ".join(filter(None, [changes, again]))),
        ("fields", ", ".join(f"`{name}`" for name in fields) or "none"),
        ("answer", ", ".join(f"`{name}`" for name in operation.result.model_fields)),
        ("errors", errors),
        ("example", f"`{orjson.dumps(dict(operation.example.request)).decode()}`"),
    ]
    return f"## {operation.name}\n\n{operation.summary}\n\n{table(['', ''], rows)}"


PARTS: Mapping[str, Callable[[], str]] = {
    "commands": commands,
    "configuration": configuration,
    "errors": error_classes,
    "events": events,
    "filter-columns": filter_columns,
    "findings": findings,
    "interfaces": interfaces,
    "operations": operations,
    "packages": package_summaries,
    "pattern-keys": pattern_keys,
    "pattern-test-keys": pattern_test_keys,
    "public-methods": public_methods,
    "public-names": public_names,
    "rule-keys": rule_keys,
    "test-keys": test_keys,
}
"""The function that makes each generated part."""


if __name__ == "__main__":
    for path, text in outdated().items():
        path.write_text(text, "utf-8")
        print(f"wrote {path.relative_to(ROOT)}")
