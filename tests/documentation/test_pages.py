"""Pages: generated parts are current, links have targets, and names exist."""

from __future__ import annotations

import re
import shlex
import tomllib
from collections.abc import Iterator
from importlib import import_module
from operator import attrgetter
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
import yaml
from jsonschema import Draft202012Validator
from pydantic import BaseModel

from docs.generate import (
    PARTS,
    PICTURE,
    every_command,
    layers,
    options_of,
    outdated,
    parts_of,
)
from slumberd.cli.json_schemas import schema_of
from slumberd.cli.registry import program
from slumberd.logs.event_catalogue import CATALOGUE
from slumberd.model.health import KINDS
from slumberd.rules.pattern_schema import PatternFile, PatternTestFile
from slumberd.rules.rule_schema import RuleFile, RuleForm
from slumberd.rules.settings import Settings
from slumberd.rules.vocabulary_loader import VocabularyFile
from slumberd.tools.rule_testing.case_schema import CaseFile
from slumberd.web.http.access import TokenFile
from tests.support.documentation import DOCS, PAGES, README, Block, blocks_of
from tests.support.lists import of_each
from tests.support.repository import ROOT

pytestmark = pytest.mark.unit

OTHERS = [ROOT / "CONTRIBUTING.md", ROOT / "SECURITY.md", ROOT / "config/monitoring/README.md"]
LINK = re.compile(r"(?<!!)\[[^\]]+\]\(([^)\s]+)\)|!\[[^\]]*\]\(([^)\s]+)\)")


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


def prose_of(page: Path) -> str:
    return re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.DOTALL | re.MULTILINE)


def spans_of(page: Path) -> list[str]:
    return re.findall(r"`([^`\n]+)`", prose_of(page))


def anchors_of(page: Path) -> set[str]:
    headings = re.findall(r"^#+ (.*)$", prose_of(page), re.MULTILINE)
    words = (re.sub(r"[^\w\s-]", "", heading.lower()) for heading in headings)
    return {re.sub(r"[\s]+", "-", text.strip()) for text in words}


@pytest.mark.slow
def test_generated_parts_are_current() -> None:
    old = [name_of(path) for path in outdated()]

    assert old == [], "run `python -m docs.generate`"


def test_every_generated_part_is_on_a_page() -> None:
    used = [name for page in PAGES for name in parts_of(page.read_text())]

    assert sorted(used) == sorted(PARTS)


def test_generator_finds_an_outdated_part(tmp_path: Path) -> None:
    page = tmp_path / "events.md"
    page.write_text("# Events\n\n<!-- generated: events -->\nold\n<!-- end of generated -->\n")

    found = outdated(tmp_path)

    assert [*found] == [page]
    text = found[page]
    assert "`daemon.ready`" in text
    assert "\nold\n" not in text


def links_of(page: Path) -> list[str]:
    return [a or b for a, b in LINK.findall(prose_of(page))]


def has_target(page: Path, link: str) -> bool:
    path, _, anchor = link.partition("#")
    if link.startswith("https://"):
        return True
    target = (page.parent / path).resolve() if path else page
    return target.exists() and (not anchor or anchor in anchors_of(target))


@of_each(lambda: [*PAGES, *OTHERS], name_of)
def test_every_link_has_a_target(page: Path) -> None:
    assert [link for link in links_of(page) if not has_target(page, link)] == []


def test_navigation_and_index_list_every_page_under_the_same_headings() -> None:
    settings = yaml.safe_load((ROOT / "mkdocs.yml").read_text())
    [home, *groups] = settings["nav"]
    [_, *parts] = re.split(r"^## (.*)$", (DOCS / "index.md").read_text(), flags=re.MULTILINE)

    def pages(entry: Any) -> Iterator[str]:
        if isinstance(entry, str):
            yield entry
        else:
            for part in entry.values() if isinstance(entry, dict) else entry:
                yield from pages(part)

    navigation = {heading: [*pages(group[heading])] for group in groups for heading in group}
    assert navigation == {
        heading: re.findall(r"\]\(([\w/-]+\.md)\)", text)
        for heading, text in zip(parts[::2], parts[1::2], strict=True)
    }
    assert sorted(pages([home, navigation])) == sorted(
        str(page.relative_to(DOCS)) for page in DOCS.rglob("*.md")
    )
    assert settings["theme"]["font"] is False


@of_each(lambda: PAGES, name_of)
def test_every_file_that_a_page_names_exists(page: Path) -> None:
    named = re.findall(
        r"`((?:tests|config|rules|systemd|docs|requirements)/[\w./-]*)`", page.read_text()
    )

    assert [path for path in named if not (ROOT / path).exists()] == []


@pytest.mark.slow
@of_each(lambda: [page for page in PAGES if "stargraph" not in page.name], name_of)
def test_every_event_finding_and_key_that_a_page_names_exists(page: Path) -> None:
    known = {*CATALOGUE, *KINDS, *keys_of(Settings), *keys_of(RuleForm), *OF_FACTS}
    families = "|".join({name.partition(".")[0] for name in known} - {"rules", "state"})
    named = [span for span in spans_of(page) if re.fullmatch(rf"(?:{families})\.[a-z_]+", span)]

    assert {*named} - known - FILES == set()


FILES = {
    "facts.db", "host.db", "memory.db", "ledger.key", "control.sock", "http.sock",
    "provenance.jsonl", "restore.json", "mcp.jsonl", "transcripts.json",
}  # fmt: skip
OF_FACTS = {"metadata.importance", "metadata.possible_duplicate"}


def keys_of(form: type[BaseModel]) -> Iterator[str]:
    """Yield the nested keys of a form, such as ``facts.batch``."""
    for name, schema in schema_of(form)["properties"].items():
        for inner in [schema, *schema.get("anyOf", ())]:
            yield from (f"{name}.{key}" for key in inner.get("properties", ()))


def commands_of(page: Path) -> list[str]:
    """Return each call of slumberd that a page shows, in blocks of shell and in the prose."""
    blocks = [block.text for block in blocks_of(page) if block.language == "sh"]
    text = "\n".join([*blocks, *spans_of(page)]).replace("\\\n", " ")
    text = re.sub(r"<<'(\w+)'\n.*?^\1$", "", text, flags=re.DOTALL | re.MULTILINE)
    parts = re.split(r"\n|\||&&|;|>", text)
    return sorted({part.strip() for part in parts if re.match(r"\s*slumberd [a-z]", part)})


def all_commands() -> list[tuple[str, str]]:
    """Return each page with each command that it shows."""
    pages = [*PAGES, *OTHERS]
    return [(name_of(page), command) for page in pages for command in commands_of(page)]


@pytest.mark.slow
@of_each(all_commands)
def test_every_command_that_a_page_shows_exists_with_its_options(shown: tuple[str, str]) -> None:
    words = shlex.split(shown[1])[1:]
    context: Any = program().make_context("slumberd", words, resilient_parsing=True)
    name, found, rest = context.command.resolve_command(context, words)
    real = found.make_context(name, [], resilient_parsing=True).command
    if hasattr(real, "commands") and rest and not rest[0].startswith("-"):
        assert rest[0] in real.commands
        real = real.commands[rest[0]]
    options = {option for parameter in real.params for option in parameter.opts} | {"-h", "--help"}

    assert {word.partition("=")[0] for word in rest if re.match("--?[a-z]", word)} <= options


def blocks_of_yaml() -> list[Block]:
    return [block for page in PAGES for block in blocks_of(page) if block.language == "yaml"]


@pytest.mark.slow
@of_each(blocks_of_yaml, attrgetter("place"))
def test_yaml_that_a_page_shows_fits_its_schema(block: Block) -> None:
    value = yaml.safe_load(block.text)
    forms: dict[str, type[BaseModel]] = {
        "rules": RuleFile,
        "tests": CaseFile,
        "patterns": PatternFile,
        "tokens": TokenFile,
        "remove": VocabularyFile,
    }
    form = next((form for key, form in forms.items() if key in value), Settings)
    if form is CaseFile and "says" in value["tests"][0]:
        form = PatternTestFile

    assert list(Draft202012Validator(schema_of(form)).iter_errors(value)) == []


def test_page_of_commands_has_every_command() -> None:
    page = (DOCS / "reference" / "commands.md").read_text()

    sections = re.findall(r"^## (.*)$", page, re.MULTILINE)

    assert [name for name, _, _ in every_command() if name not in sections] == []


def test_architecture_shows_the_packages_of_the_import_contract() -> None:
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]
    [layers_contract] = [
        contract for contract in contracts["contracts"] if contract["id"] == "layers"
    ]
    names = [name for layer in layers_contract["layers"] for name in layer.split(" | ")]
    page = (DOCS / "explanation" / "architecture.md").read_text()
    section = page.split("\n## The packages\n")[1].split("\n## ")[0]

    assert re.findall(r"^\| `(\w+)` \| ", section, re.MULTILINE) == names
    assert re.findall(r">(\w+)</text>", PICTURE.read_text()) == names
    assert [len(layer) for layer in layers()] == [
        layer.count("|") + 1 for layer in layers_contract["layers"]
    ]


@of_each(lambda: sorted(DOCS.rglob("*.svg")), name_of)
def test_page_shows_each_picture_and_the_picture_loads_nothing(picture: Path) -> None:
    tree = ElementTree.parse(picture)  # noqa: S314 # a file of the repository
    tags = [element.tag.rpartition("}")[2] for element in tree.iter()]
    pages = [page for page in PAGES if picture.name in links_of(page)]

    assert {*tags} & {"image", "use", "script", "style", "foreignObject"} == set()
    assert [page.parent for page in pages] == [picture.parent]


def hops_of(path: str) -> list[tuple[str, str]]:
    """Return function and module of each hop that the architecture lists for a path."""
    page = (DOCS / "explanation" / "architecture.md").read_text()
    table = page.split(f"<!-- path: {path} -->\n\n")[1].split("\n\n")[0]
    return re.findall(r"^\| `([\w.]+)` \| `([\w.]+)` \|", table, re.MULTILINE)


@of_each(lambda: [*hops_of("episode"), *hops_of("rule file")])
def test_every_hop_that_the_architecture_lists_exists(hop: tuple[str, str]) -> None:
    function, module = hop
    found = attrgetter(function)(import_module(module))

    assert callable(found)
    assert found.__module__ == module


VOCABULARY = {
    "candidate", "claim", "current", "declared fact", "deletion limit", "erased scope",
    "evaluation", "graph promotion", "held batch", "known state", "ledger", "manual edit",
    "precedence", "precedence rule", "provenance publisher", "resolution", "retraction",
    "watermark", "withdrawal",
}  # fmt: skip
"""The glossary must explain these words of code, messages and pages."""


def test_glossary_explains_the_vocabulary_in_order() -> None:
    page = (DOCS / "reference" / "glossary.md").read_text()
    entries = re.findall(r"^\| (\*\*.*?\*\*) \|", page, re.MULTILINE)
    words = [re.findall(r"\*\*(.*?)\*\*", entry) for entry in entries]

    assert {word for group in words for word in group} >= VOCABULARY
    assert [group[0] for group in words] == sorted(group[0] for group in words)


def test_readme_is_short() -> None:
    assert len(README.read_text().splitlines()) <= 150


@of_each(lambda: ["demo", "test"])
def test_readme_marks_the_block_that_ci_runs(name: str) -> None:
    marked = rf"^<!-- ci: {name} -->\n```sh\npython3 -m venv "

    assert re.search(marked, README.read_text(), re.MULTILINE)


def test_pages_load_nothing_from_the_network() -> None:
    embedded = r"!\[[^\]]*\]\(https?:|<(?:img|script|link|iframe)\b"

    assert [name_of(page) for page in PAGES if re.search(embedded, page.read_text())] == []


WITHOUT_JSON = {
    "run", "mcp", "demo", "init", "logs", "export", "audit export", "hook", "hooks install",
    "hooks uninstall", "postgres add-shard", "postgres init", "postgres upgrade",
}  # fmt: skip
"""The page of commands lists these as commands without ``--json``."""


def test_every_other_command_takes_json() -> None:
    taking = {
        name
        for name, function, _ in every_command()
        if any(option.usage == "--json" for option in options_of(function))
    }

    assert {name for name, _, _ in every_command()} - taking == WITHOUT_JSON
