"""The loader returns the patterns and tests of a file, or reports every mistake with its place."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator

from slumberd.cli.json_schemas import SHIPPED as SCHEMAS
from slumberd.cli.json_schemas import schema_of
from slumberd.consolidation.extraction.patterns import Expected, PatternSet, run_pattern_tests
from slumberd.model.errors import ConfigurationError
from slumberd.model.extraction import Turn
from slumberd.rules.pattern_loader import extraction_of, load_pattern_tests, load_patterns
from slumberd.rules.yaml_reader import read_document
from tests.support.repository import ROOT

pytestmark = pytest.mark.unit

TEA = """\
speakers: {user_turn: ada}
aliases:
  objects: {chai: tea}
words:
  drink: [tea, chai, hot milk]
patterns:
  - id: likes
    when: '(?P<who>\\w+) likes? (?P<what>{drink})'
    says: {subject: '{who}', predicate: likes, object: '{what}'}
    normalise: {what: [case]}
"""
SAYS = "says: {subject: ada, predicate: likes, object: tea}"
TEST = """\
tests:
  - name: tea
    says: [{speaker: user_turn, text: I like Chai.}]
    expect: [{subject: ada, predicate: likes, object: tea}]
"""


def _write(tmp_path: Path, text: str) -> Path:
    file = tmp_path / "tea.yaml"
    file.write_text(text)
    return file


def _mistakes(tmp_path: Path, text: str) -> list[str]:
    """Return the mistakes of a pattern file, without the path of the file."""
    file = _write(tmp_path, text)
    with pytest.raises(ConfigurationError) as failure:
        load_patterns(file)
    assert all(mistake.file == str(file) for mistake in failure.value.mistakes)
    return [str(mistake).removeprefix(f"{file}:") for mistake in failure.value.mistakes]


def _pattern(*lines: str) -> str:
    """Return a file with one pattern, whose keys begin in line 2."""
    return "patterns:\n  - " + "\n    ".join(lines) + "\n"


def test_patterns_of_a_file_find_triples(tmp_path: Path) -> None:
    patterns = load_patterns(_write(tmp_path, TEA))

    [found] = patterns.extract([Turn("e1", "s", "user_turn", "I like Chai.", 0)], [None])

    assert [(one.subject, one.object, one.by) for one in found] == [("ada", "tea", "likes")]


def test_every_key_of_a_pattern_has_its_effect(tmp_path: Path) -> None:
    text = _pattern(
        "id: all", "when: [tea, 'in (?P<num>.*) days']", "when_previous: '(?P<drink>coffee)'",
        "unless: never", "intent: delete", "negated: allow", "confidence: 0.5",
        "says: {subject: '{other}', predicate: '{drink}', object: 5}", "normalise: {num: [number]}",
        "keep_unknown: [num]", "description: everything",
    )  # fmt: skip

    [pattern] = load_patterns(_write(tmp_path, text)).patterns

    assert [len(pattern.when), len(pattern.unless), pattern.when_previous is None] == [2, 1, False]
    assert (pattern.intent, pattern.negated, pattern.confidence) == ("delete", "allow", 0.5)
    assert pattern.says == ("{other}", "{drink}", 5, "")
    assert (dict(pattern.normalise), pattern.keep_unknown) == ({"num": ["number"]}, {"num"})


GUARDED = """\
unless: maybe
unless_in: clause
single_valued: [lives_in, favourite_*]
multi_valued: [likes]
opposites: [[likes, dislikes], [likes, avoids]]
patterns:
  - {id: a, when: 'like (?P<what>\\w+)', says: {subject: ada, predicate: likes, object: '{what}'}}
  - id: b
    when: broke up
    intent: delete
    says: {subject: ada, predicate: partner}
    unless_in: sentence
    unless: never
  - id: c
    when: 'the (?P<what>.*) is cancelled'
    intent: delete
    says: {subject: ada, predicate: plans, object_words: '{what}'}
    file_unless: false
"""


def test_every_key_of_a_file_has_its_effect(tmp_path: Path) -> None:
    extraction = extraction_of(read_document(_write(tmp_path, GUARDED)))
    patterns = extraction.extractor
    assert isinstance(patterns, PatternSet)

    likes, partner, plans = patterns.patterns

    assert [len(one.unless) for one in (likes, partner, plans)] == [1, 2, 0]
    assert [one.unless_in for one in (likes, partner)] == ["clause", "sentence"]
    assert partner.says == ("ada", "partner", None, "")
    assert plans.says == ("ada", "plans", None, "{what}")
    assert extraction.single_valued == {"lives_in", "favourite_*"}
    assert extraction.multi_valued == {"likes"}
    assert patterns.opposites == {
        "likes": ["dislikes", "avoids"], "dislikes": ["likes"], "avoids": ["likes"],
    }  # fmt: skip


@pytest.mark.parametrize("key", ["single_valued: [", "multi_valued: [", "opposites: [[x, "])
def test_digest_changes_with_cardinality_and_opposites(tmp_path: Path, key: str) -> None:
    ending = "]]" if "[[" in key else "]"
    digests = {
        extraction_of(read_document(_write(tmp_path, f"{key}{value}{ending}\n{TEA}"))).digest
        for value in ("a", "b")
    }

    assert len(digests) == 2


@pytest.mark.parametrize(
    ("text", "mistakes"),
    [
        pytest.param("", ["1:1: key 'patterns' is missing"], id="empty file"),
        pytest.param(
            "patterns: []",
            ["1:11: patterns: at least one entry is needed, not []"],
            id="no pattern",
        ),
        pytest.param(
            _pattern("id: a", "wen: tea", SAYS),
            ["3:5: patterns[0].wen: unknown key 'wen'; did you mean 'when'?"],
            id="unknown key",
        ),
        pytest.param(
            _pattern("id: a"),
            ["2:5: patterns[0]: key 'when' is missing", "2:5: patterns[0]: key 'says' is missing"],
            id="missing keys",
        ),
        pytest.param(
            _pattern("id: A b", "when: 5", "says: tea", "confidence: 2", "intent: update"),
            [
                "2:9: patterns[0].id: 'A b' is not a valid name: use 1 to 64 of a-z, 0-9, '.', '_',"
                " ':' and '-'; did you mean 'a-b'?",
                "3:11: patterns[0].when: a list is needed, not 5",
                "4:11: patterns[0].says: keys with values are needed, not 'tea'",
                "5:17: patterns[0].confidence: at most 1 is needed, not 2",
                "6:13: patterns[0].intent: 'add' or 'delete' is needed, not 'update'",
            ],
            id="wrong types",
        ),
        pytest.param(
            _pattern("id: a", "when: [tea, '']", "when_previous: null", SAYS),
            [
                "3:17: patterns[0].when[1]: text is needed, not ''",
                "4:20: patterns[0].when_previous: a value is needed here; without one, leave out"
                " the key",
            ],
            id="empty expressions",
        ),
        pytest.param(
            _pattern("id: a", "when: tea", "says: {subject: a, predicate: b, object: [c]}"),
            [
                "4:46: patterns[0].says.object: text, a number, true or false is needed, not a list"
            ],
            id="object of a list",
        ),
        pytest.param(
            _pattern("id: a", "when: tea", SAYS, "negated: delete", "intent: delete"),
            ["2:5: patterns[0]: 'negated: delete' goes with 'intent: add'; choose veto or allow"],
            id="two deletes",
        ),
        pytest.param(
            _pattern("id: a", "when: tea", "says: {subject: a, predicate: b}"),
            ["2:5: patterns[0]: the triple has no object; only 'intent: delete' goes without one"],
            id="no object",
        ),
        pytest.param(
            _pattern("id: a", "when: tea", "says: {subject: a, predicate: b, object: null}"),
            [
                "4:46: patterns[0].says.object: a value is needed here; without one, leave out the"
                " key"
            ],
            id="null object",
        ),
        pytest.param(
            _pattern(
                "id: a", "when: tea", "says: {subject: a, predicate: b, object: c}",
                "unless_in: clauses",
            ),
            [
                "5:16: patterns[0].unless_in: 'clause' or 'sentence' is needed, not 'clauses'; did"
                " you mean 'clause'?"
            ],
            id="unknown place of guards",
        ),
        pytest.param(
            _pattern("id: a", "when: tea", "says: {subject: a, predicate: b, object_words: c}"),
            ["2:5: patterns[0]: 'object_words' goes with 'intent: delete', and without 'object'"],
            id="words of an add",
        ),
        pytest.param(
            _pattern(
                "id: a", "when: tea", "intent: delete",
                "says: {subject: a, predicate: b, object_words: '{what}'}",
            ),
            [
                "5:52: patterns[0].says.object_words: there is no group 'what'; known are speaker,"
                " other"
            ],
            id="unknown group of words",
        ),
        pytest.param(
            "unless: ['(', '{x}']\n" + _pattern("id: a", "when: 'a\\Cb'", SAYS),
            [
                "1:11: unless[0]: the expression is not valid RE2: missing ): (",
                "1:15: unless[1]: there is no word list 'x'; none is defined",
                "4:13: patterns[0].when: the expression is not valid RE2: \\C is one byte; write"
                " (?s:.) for any character",
            ],
            id="guards of the file",
        ),
        pytest.param(
            "single_valued: [a, b]\nmulti_valued: [c, b, c]\nopposites: [[a, a], [a], x]\n"
            + _pattern("id: a", "when: tea", SAYS),
            [
                "2:19: multi_valued[1]: 'b' is under single_valued too; leave one of them out",
                "2:22: multi_valued[2]: 'c' is given twice; leave one of them out",
                "3:17: opposites[0][1]: 'a' is no opposite of itself; name another predicate",
                "3:21: opposites[1]: too few: 1 entry, at least 2",
                "3:26: opposites[2]: a list is needed, not 'x'; write [x]",
            ],
            id="cardinality and opposites",
        ),
        pytest.param(
            _pattern("id: a", "when: 'tea (milk'", SAYS),
            ["3:12: patterns[0].when: the expression is not valid RE2: missing ): tea (milk"],
            id="bad expression",
        ),
        pytest.param(
            _pattern("id: a", "when: [tea, 'x(?=y)']", SAYS),
            [
                "3:19: patterns[0].when[1]: the expression is not valid RE2: invalid perl operator:"
                " (?="
            ],
            id="bad expression at its character",
        ),
        pytest.param(
            _pattern("id: a", "when: tea", "unless: '['", "when_previous: '*'", SAYS),
            [
                "4:14: patterns[0].unless: the expression is not valid RE2: missing ]: [",
                "5:21: patterns[0].when_previous: the expression is not valid RE2: no argument for"
                " repetition operator: *",
            ],
            id="bad expressions of other keys",
        ),
        pytest.param(
            "words: {drinks: [tea]}\n" + _pattern("id: a", "when: '{drink}'", SAYS),
            ["4:11: patterns[0].when: there is no word list 'drink'; did you mean 'drinks'?"],
            id="unknown word list",
        ),
        pytest.param(
            _pattern("id: a", "when: '{drink}'", SAYS),
            ["3:11: patterns[0].when: there is no word list 'drink'; none is defined"],
            id="no word lists",
        ),
        pytest.param(
            "words: {the drink: [tea], empty: [], blank: [' ']}\n" + TEA.replace("words:", "wrds:"),
            [
                "1:9: words.the drink: 'the drink' is not a valid name: use a letter, then letters,"
                " digits and '_'",
                "1:34: words.empty: at least one entry is needed, not []",
                "1:46: words.blank[0]: text is needed, not ' '",
                "5:1: wrds: unknown key 'wrds'; did you mean 'words'?",
                "9:11: patterns[0].when: there is no word list 'drink'; did you mean 'the drink'?",
            ],
            id="names of word lists",
        ),
        pytest.param(
            _pattern(
                "id: a", "when: '(?P<drink>tea)'",
                "says: {subject: '{speker}', predicate: likes, object: '{drinks}'}",
            ),
            [
                "4:21: patterns[0].says.subject: there is no group 'speker'; did you mean"
                " 'speaker'?",
                "4:59: patterns[0].says.object: there is no group 'drinks'; did you mean 'drink'?",
            ],
            id="unknown groups",
        ),
        pytest.param(
            _pattern(
                "id: a", "when: ['(?P<what>tea)', milk]",
                "says: {subject: ada, predicate: likes, object: '{what}'}",
            ),
            [
                "4:52: patterns[0].says.object: there is no group 'what' in entry 2 of 'when';"
                " known are speaker, other"
            ],
            id="group of one expression only",
        ),
        pytest.param(
            "single_valued: [Loves]\nopposites: [[likes, hates], [a, loves]]\n"
            "aliases: {predicates: {loves: likes, likes: likes}}\n"
            + _pattern("id: a", "when: tea", SAYS),
            [
                "1:17: single_valued[0]: 'Loves' is an alias; write 'likes'",
                "2:33: opposites[1][1]: 'loves' is an alias; write 'likes'",
            ],
            id="aliases in the lists of predicates",
        ),
        pytest.param(
            _pattern(
                "id: a", "when: tea", "intent: delete",
                "says: {subject: a, predicate: b, object_words: the \u2764\ufe0f of}",
            ),
            [
                "5:52: patterns[0].says.object_words: 'the \u2764\ufe0f of' has no word that"
                " counts; name a word of the objects"
            ],
            id="words without content",
        ),
        pytest.param(
            _pattern("id: A", "when: '('", "unless: '{x}'", "when_previous: ')'", "says: 7"),
            [
                "2:9: patterns[0].id: 'A' is not a valid name: use 1 to 64 of a-z, 0-9, '.', '_',"
                " ':' and '-'; did you mean 'a'?",
                "3:12: patterns[0].when: the expression is not valid RE2: missing ): (",
                "4:13: patterns[0].unless: there is no word list 'x'; none is defined",
                "5:21: patterns[0].when_previous: the expression is not valid RE2: unexpected ): )",
                "6:11: patterns[0].says: keys with values are needed, not 7",
            ],
            id="bad expressions of a malformed pattern",
        ),
        pytest.param(
            _pattern("id: a", "when: '(?P<other>tea)'", SAYS),
            [
                "3:11: patterns[0].when: group 'other' has the name of a speaker; give it another"
                " name"
            ],
            id="group named as a speaker",
        ),
        pytest.param(
            _pattern(
                "id: a", "when: '(?P<n>.)'", SAYS, "normalise: {m: [number]}", "keep_unknown: [o]"
            ),
            [
                "5:20: patterns[0].normalise.m: there is no group 'm'; known are n",
                "6:20: patterns[0].keep_unknown[0]: there is no group 'o'; known are n",
            ],
            id="unknown groups to normalise",
        ),
        pytest.param(
            _pattern("id: a", "when: '(?P<num>.)'", SAYS, "normalise: {num: [numbr]}"),
            [
                "5:23: patterns[0].normalise.num[0]: 'case', 'whitespace', 'number', 'date' or"
                " 'list' is needed, not 'numbr'; did you mean 'number'?"
            ],
            id="unknown normaliser",
        ),
        pytest.param(
            _pattern("id: a", "when: tea", SAYS) + "  - {id: a, when: x, " + SAYS + "}\n",
            ["5:10: patterns[1].id: id 'a' is taken in line 2; choose another"],
            id="repeated id",
        ),
        pytest.param(
            "aliases:\n  objects: {Chai: tea, chai : milk, milk: cow}\n  things: {}\n"
            + _pattern("id: a", "when: tea", SAYS),
            [
                "2:24: aliases.objects.chai: 'chai' is the same alias as 'Chai'; leave one out",
                "2:31: aliases.objects.chai: 'milk' is itself an alias; write 'cow'",
                "3:3: aliases.things: unknown key 'things'; known are subjects, predicates,"
                " objects",
            ],
            id="aliases",
        ),
        pytest.param(
            _pattern("id: a", 'when: "\\ud800"', SAYS),
            ["3:11: patterns[0].when[0]: text is needed, not '\\ud800'"],
            id="lone surrogate",
        ),
        pytest.param("patterns: [", ["1:12: a value, or the closing bracket, is missing here"],
                     id="no YAML"),
    ],
)  # fmt: skip
def test_mistakes_are_reported_at_their_places(
    tmp_path: Path, text: str, mistakes: list[str]
) -> None:
    assert _mistakes(tmp_path, text) == mistakes


def test_mistakes_of_several_patterns_are_reported_at_once(tmp_path: Path) -> None:
    text = (
        _pattern("id: a", "when: '('", SAYS)
        + "  - {id: b, when: tea, says: {}}\n"
        + ("  - {id: c, when: ')', " + SAYS + "}\n")
    )

    assert [line.split(":")[0] for line in _mistakes(tmp_path, text)] == ["3", "5", "5", "6"]


def test_patterns_without_the_extra_name_the_package_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "re2", None)

    assert _mistakes(tmp_path, TEA) == [
        "8:11: patterns[0].when: needs the extra: `pip install 'slumberd[regex]'`"
    ]


def test_file_that_everybody_can_write_is_refused_for_root(tmp_path: Path) -> None:
    file = _write(tmp_path, TEA)
    os.chmod(file, 0o666)  # noqa: PTH101, S103 # that is the case

    with pytest.raises(ConfigurationError, match="everybody"):
        load_patterns(file, by_root=True)
    assert load_patterns(file, by_root=False).patterns


def test_missing_file_is_reported(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="does not exist"):
        load_patterns(tmp_path / "none.yaml")
    with pytest.raises(ConfigurationError, match="does not exist"):
        load_pattern_tests(tmp_path / "none.test.yaml")


def test_tests_of_a_file_are_run(tmp_path: Path) -> None:
    patterns = load_patterns(_write(tmp_path, TEA))
    tests = load_pattern_tests(_write(tmp_path, TEST))

    assert run_pattern_tests(patterns, tests) == []


def test_turns_of_a_test_are_a_minute_apart_unless_it_gives_an_instant(tmp_path: Path) -> None:
    text = TEST.replace(
        "says: [",
        "says: [{speaker: a, text: x}, {speaker: a, text: x},"
        " {speaker: a, text: x, at: '2026-05-24T14:00:00+02:00'}, ",
    )

    [test] = load_pattern_tests(_write(tmp_path, text))

    first, minute = 1_767_225_600_000_000, 60_000_000
    sunday = 1_779_624_000_000_000
    assert [turn.at for turn in test.turns] == [first, first + minute, sunday, sunday + minute]
    assert len({turn.id for turn in test.turns}) == 4


def test_expected_retraction_may_have_words_or_no_object(tmp_path: Path) -> None:
    file = _write(tmp_path, GUARDED)
    tests = tmp_path / "tea.test.yaml"
    tests.write_text(
        """\
tests:
  - name: ends
    says: [{speaker: ada, text: We broke up. The trip to Tokyo is cancelled.}]
    expect:
      - {subject: ada, predicate: partner, intent: delete}
      - {subject: ada, predicate: plans, intent: delete, object_words: [tokyo, trip]}
"""
    )

    assert run_pattern_tests(load_patterns(file), load_pattern_tests(tests)) == []


@pytest.mark.parametrize("keys", ["", ", object: a, intent: delete, object_words: [b]"])
def test_expected_triple_has_an_object_or_is_a_delete(tmp_path: Path, keys: str) -> None:
    text = TEST.replace(", object: tea", keys)

    with pytest.raises(ConfigurationError, match="object"):
        load_pattern_tests(_write(tmp_path, text))


def test_expected_triple_is_an_add_unless_it_says_otherwise(tmp_path: Path) -> None:
    text = TEST.replace("object: tea", "object: 5, intent: delete")

    [test] = load_pattern_tests(_write(tmp_path, text))

    assert test.expected == (Expected("ada", "likes", 5, "delete"),)


@pytest.mark.parametrize(
    ("text", "mistakes"),
    [
        pytest.param("tests: []", ["1:8: tests: at least one entry is needed, not []"], id="none"),
        pytest.param(
            TEST.replace("speaker", "speeker").replace("expect", "expects"),
            [
                "3:13: tests[0].says[0].speeker: unknown key 'speeker'; did you mean 'speaker'?",
                "4:5: tests[0].expects: unknown key 'expects'; did you mean 'expect'?",
            ],
            id="unknown keys",
        ),
        pytest.param(
            TEST.replace("Chai.", "Chai., at: '2026-05-24'"),
            [
                "3:57: tests[0].says[0].at: '2026-05-24' is not an instant; write ISO 8601 with an"
                " offset, as '2026-01-01T12:00:00Z'"
            ],
            id="no instant",
        ),
        pytest.param(
            TEST + TEST.partition("\n")[2],
            ["5:11: tests[1].name: name 'tea' is taken in line 2; choose another"],
            id="repeated name",
        ),
    ],
)
def test_mistakes_of_tests_are_reported_at_their_places(
    tmp_path: Path, text: str, mistakes: list[str]
) -> None:
    file = _write(tmp_path, text)

    with pytest.raises(ConfigurationError) as failure:
        load_pattern_tests(file)

    assert [str(m).removeprefix(f"{file}:") for m in failure.value.mistakes] == mistakes


SHIPPED = sorted((ROOT / "docs" / "examples").glob("*.yaml"))


@pytest.mark.slow
@pytest.mark.parametrize("file", SHIPPED, ids=lambda file: file.name)
def test_shipped_file_names_its_schema_and_fits_it(file: Path) -> None:
    name = "pattern-tests" if file.name.endswith(".test.yaml") else "patterns"
    modeline, _, _ = file.read_text().partition("\n")

    assert modeline == f"# yaml-language-server: $schema=../../config/{name}.schema.json"
    assert _fits_schema(name, file)


def _fits_schema(name: str, file: Path) -> bool:
    validator = Draft202012Validator(schema_of(SCHEMAS[name].form))
    return validator.is_valid(read_document(file).value)


@pytest.mark.parametrize(
    ("change", "fits"),
    [
        (("likes? ", "likes? "), True),
        (("    when: ", "    when:\n      - "), True),
        (("words:", "wrds:"), False),
        (("id: likes", "id: A b"), False),
        (("what: [case]", "what: [caze]"), False),
        (("object: '{what}'", "object: [tea]"), False),
        (("object: '{what}'", "object: ''"), False),
        (("  - id", "  - when_previous: null\n    id"), False),
        (("  - id", "  - confidence: 2\n    id"), False),
        (("drink: [tea, chai, hot milk]", "drink: [tea, chai, hot milk]\n  a b: [x]"), False),
        ((", object: '{what}'", ""), False),
        ((", object: '{what}'}", "}\n    intent: delete"), True),
        ((", object: '{what}'}", ", object_words: '{what}'}\n    intent: delete"), True),
        ((", object:", ", object_words: a, object:"), False),
        ((", object: '{what}'}", ", object: a, object_words: a}\n    intent: delete"), False),
        (("'{what}'}", "'{what}'}\n    unless_in: clause\n    file_unless: false"), True),
        (("'{what}'}", "'{what}'}\n    unless_in: null"), False),
        (("patterns:", "unless: maybe\nunless_in: clause\npatterns:"), True),
        (("patterns:", "unless_in: word\npatterns:"), False),
        (("patterns:", "opposites: [[a, b]]\nsingle_valued: [a]\npatterns:"), True),
        (("patterns:", "opposites: [[a, b, c]]\npatterns:"), False),
        (("what: [case]", "what: [list]"), True),
    ],
)
def test_schema_and_loader_agree(tmp_path: Path, change: tuple[str, str], fits: bool) -> None:
    file = _write(tmp_path, TEA.replace(*change))

    if fits:
        assert load_patterns(file).patterns
    else:
        with pytest.raises(ConfigurationError):
            load_patterns(file)
    assert _fits_schema("patterns", file) == fits
