"""The published versions of the rules: numbered one after the other, and never changed."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from slumberd.model.errors import OtherRulesPublishedError, PermissionDeniedError
from slumberd.model.rule import RulesToPublish
from slumberd.storage.postgres.connection import connect, translate_errors
from slumberd.storage.postgres.rule_sets import RuleSetTable
from tests.support.postgres_server import PostgresServer

pytestmark = pytest.mark.integration


def rules(text: str, **others: str) -> RulesToPublish:
    return RulesToPublish("0123456789abcdef", {"a.yaml": text, **others}, "ann@alpha", "why not")


@pytest.fixture
def table(postgres_address: str) -> RuleSetTable:
    return RuleSetTable(postgres_address)


def test_newest_version_is_returned_as_it_was_published(table: RuleSetTable) -> None:
    assert table.read() is None
    table.publish(rules("rules: []\r\n# é \U0001f375"))
    published, is_new = table.publish(rules("rules: []\n", **{"patterns/b.yaml": "patterns: []"}))

    assert is_new
    assert table.read() == published
    assert published.version == 2
    assert published.texts == {"a.yaml": "rules: []\n", "patterns/b.yaml": "patterns: []"}
    assert (published.by, published.reason) == ("ann@alpha", "why not")
    assert published.published_at.tzinfo is not None
    older = table.read(1)
    assert older is not None
    assert older.texts == {"a.yaml": "rules: []\r\n# é \U0001f375"}
    assert table.read(3) is None
    assert [one.version for one in table.newest(10)] == [2, 1]
    assert [one.version for one in table.newest(1)] == [2]


def test_equal_files_are_published_once(table: RuleSetTable) -> None:
    first, _ = table.publish(rules("rules: []"))
    again, is_new = table.publish(rules("rules: []"))

    assert (again, is_new) == (first, False)
    assert len(table.newest(10)) == 1


def test_older_files_can_be_published_again(table: RuleSetTable) -> None:
    for text in ("one", "two", "one"):
        table.publish(rules(text))

    assert [one.version for one in table.newest(10)] == [3, 2, 1]


def test_publication_over_an_unexpected_version_is_refused(table: RuleSetTable) -> None:
    table.publish(rules("one"), expected=0)
    with pytest.raises(OtherRulesPublishedError) as refused:
        table.publish(rules("two"), expected=0)
    table.publish(rules("two"), expected=1)

    assert (refused.value.expected, refused.value.newest) == (0, 1)
    assert refused.value.exit_code == 75
    assert [one.version for one in table.newest(10)] == [2, 1]


def test_publishers_at_the_same_time_get_different_versions(table: RuleSetTable) -> None:
    with ThreadPoolExecutor(8) as pool:
        done = list(pool.map(lambda n: table.publish(rules(f"# {n}")), range(8)))

    assert sorted(version.version for version, _ in done) == [*range(1, 9)]


def test_of_publishers_that_expect_one_version_a_single_one_succeeds(table: RuleSetTable) -> None:
    def publish(n: int) -> bool:
        try:
            return table.publish(rules(f"# {n}"), expected=0)[1]
        except OtherRulesPublishedError:
            return False

    with ThreadPoolExecutor(8) as pool:
        assert sum(pool.map(publish, range(8))) == 1


def test_daemons_publish_and_change_no_version_and_hosts_may_do_nothing(
    postgres: PostgresServer, postgres_address: str
) -> None:
    database = postgres_address.rpartition("/")[2]
    for login in ("daemon", "host", "reader"):
        postgres.login(f"a_{login}", f"slumberd_{login}")
    daemon = postgres.address_of(database, login="a_daemon")
    RuleSetTable(daemon).publish(rules("one"))

    for login in ("a_host", "a_reader"):
        address = postgres.address_of(database, login=login)
        with pytest.raises(PermissionDeniedError):
            RuleSetTable(address).read()
        with pytest.raises(PermissionDeniedError):
            RuleSetTable(address).publish(rules("two"))
    for change in (b"UPDATE slumberd.rule_sets SET hash = ''", b"DELETE FROM slumberd.rule_sets"):
        with (
            pytest.raises(PermissionDeniedError),
            connect(daemon) as connection,
            translate_errors(daemon),
        ):
            connection.execute(change)
