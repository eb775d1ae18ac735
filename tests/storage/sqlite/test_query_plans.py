"""The query plan of every statement: one of constant cost reads no whole table and sorts none.

A new statement fails here until it is in one of the lists. The statements of ``compare``,
``replay`` and ``whole_tables`` read whole databases, and those of ``ledger_schema`` create one.
"""

from __future__ import annotations

import asyncio
import re
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from slumberd.sql_statements import statements
from slumberd.storage.sqlite.fact_store import SQLiteFactStore
from slumberd.storage.sqlite.memory_store import SQLiteMemoryStore
from tests.support.lists import of_each
from tests.support.sql_files import files_of

pytestmark = pytest.mark.integration

FILES = {
    "accesses": "memory.db",
    "episodes": "memory.db",
    "episode_log": "memory.db",
    "extractions": "memory.db",
    "filters": "memory.db",
    "index_feed": "memory.db",
    "erased_scopes": "memory.db",
    "recent": "memory.db",
    "erasure": "facts.db",
    "external_changes": "facts.db",
    "facts": "facts.db",
    "promotion_feed": "facts.db",
    "ledger": "facts.db",
    "inspection": "facts.db",
    "migrations": "facts.db",
    "similarity": "facts.db",
    "erased_content": "facts.db",
    "unfinished_erasures": "facts.db",
    "rewrites": "facts.db",
    "stage_file": "stages.db",
}
"""Each file of statements, and a database that they run on."""

WHOLESALE = {
    "carried_over", "compare", "fact_check", "host_record", "ledger_schema", "partition", "replay",
    "verify_tables", "whole_tables",
}  # fmt: skip
"""Files of statements that create tables, or compare and rebuild everything."""

OF_EPISODES = (
    "inspection.users_of_episodes",
    "inspection.future",
    "inspection.origin_of_slumberd_episode_log",
    "erased_content.ids",
    "erased_content.scope_keys",
    "erased_content.timestamps",
    "inspection.count_episodes",
)
"""Statements of files of both databases that run on episodes."""

FLAT = {
    "accesses": "accesses erase hold let_go log_again read",
    "episodes": "any_of_ids by_id insert page rowids update",
    "episode_log": "begin_rewriting episode_at is_inside moved objects oldest_timestamp prune "
    "rewriting_begun_at window",
    "extractions": "blank_answers blank_requests drop_sources erase erase_summaries lost_turns "
    "record record_request record_summary recorded release_key spend spent summaries",
    "filters": "clear_batch fill_batch select_by_content select_by_scope",
    "index_feed": "deleted_after record_unknown_deletions rows_of written_after",
    "erased_scopes": "add_key add_moment drop_episodes episodes_at episodes_of exists has_key key "
    "moment moments written_since",
    "recent": "agent_other agent_utc any_other any_owned key_other key_upto key_utc owned_session "
    "owned_user "
    "next_agent_other next_agent_utc next_key_other next_key_utc",
    "erasure": "blank_held_batches blank_watermarks count_facts_of_scope drop_facts_of_scope "
    "drop_keys erase_rows facts_of_scope manual_claims_that_refer numbers_of_keys rows_of_facts "
    "rows_of_keys "
    "rows_to_erase rows_without_key",
    "external_changes": "drop_unreadable end_own_write begin_own_write row unreadable_ids",
    "facts": "agents_of_user drop_facts facts_from_id facts_from_id_backwards "
    "facts_of_owner_from_id facts_of_owner_from_id_backwards find_facts_of_ids "
    "find_facts_of_object find_facts_of_objects find_facts_of_objects_between "
    "find_facts_of_subject find_facts_of_subject_and_predicate "
    "find_facts_of_subject_and_predicates find_facts_of_subject_and_predicates_between "
    "find_facts_of_subjects find_facts_of_subjects_between find_facts_of_user "
    "find_facts_of_user_and_agent find_facts_of_users find_facts_of_users_between "
    "find_facts_without_object has_fact ids_of_user owners_from put_fact retracted_by_people",
    "erased_content": "timestamps",
    "unfinished_erasures": "all begin count end",
    "rewrites": "finish pending",
    "promotion_feed": "changed_facts has_content put_number promotions "
    "promotions_of_current_facts sinks",
    "ledger": "add_channels add_firing add_generation add_held_batch add_number add_reference "
    "add_row any_firing_of approve_held_batch batch_ends chain chain_at erasures_after "
    "channels_between count_rows_before firings_from first_key_between hash_links "
    "last_firing_before link_before rows_to_export "
    "channels declared_states drop_held_batch drop_quarantine drop_states end_of_firing "
    "facts_by_id firing firing_document firing_rows_of_rule firings_before "
    "firings_of_rule_before first_watermark "
    "generations held_batches last_counts last_firings last_generation last_of_firings number "
    "rows_of_channels_after rules_after "
    "owned_rows payload put_quarantine put_state quarantine_after quarantine_of_rule_after "
    "quarantine_of_episodes_after "
    "quarantined_records raise_number records records_of_fact records_of_firing "
    "correct_served referrers rules_of_firings served set_number set_served "
    "set_success set_watermark states_of_keys states_of_slots successes undone_after undone_by "
    "watermark watermarks whole_rows whole_states",
    "inspection": "has_table any_fact_of_user count_unnumbered erasures kind_of_facts last_firings "
    "oldest_unnumbered origin_of_slumberd_ledger triggers users_of_episodes users_of_facts",
    "stage_file": "add_owner add_rule archived clear_entries clear_erasures clear_owners "
    "clear_texts clear_traces count_entries drop_entry drop_text drop_trace due eids entries "
    "erase_entries erase_owners erase_texts erase_traces erasures owner owners_of put_entry "
    "put_text put_trace rule set_place texts traced",
    "migrations": "columns component_version file has_migration record_migration "
    "set_component_version types_of_columns",
}
"""Statements of constant cost: an index finds each row that they read."""

FIRST = {
    "episodes": "probe",  # LIMIT 0
    "episode_log": "newest pending",
    "index_feed": "last_deletion",
    "external_changes": "any_change",
    "promotion_feed": "end_of_page lag",
    "ledger": "counts_after end last_moved_by last_row last_seq_by",
    "inspection": "first_firing_since last_recorded origin_of_slumberd_episode_log unlogged",
    "migrations": "migrated_to",
}
"""Statements that read a table in its own order, and end after the first rows."""

FOUND = {
    "inspection": "any_loss changes_by_user erasures_since",
    "ledger": "counts_by_content fact_ids_of_keys facts_of_keys latest_batches "
    "learned_versions readings "
    "firings_since kinds_in_firings parts last_of_rule "
    "detailed_records removals evaluations evaluations_between evaluated_in_firing "
    "future_upto promoted_by quarantined",
    "similarity": "winners_between",
    "index_feed": "ids_of_rows ids_written_after",
}
"""Statements that sort only rows that an index found."""

WHOLE = {
    "episode_log.prunable": "one step a minute; no more than 10,000 deletions are known",
    "episode_log.log_every_episode": "once, when the log is begun",
    "erasure.blank_firings": "an erased user may be named anywhere",
    "erasure.count_facts": "a certificate says how many there were",
    "erasure.drop_references": "an erased user may be named anywhere",
    "erasure.drop_quarantine_of_rows": "rows of an erased user may be anywhere",
    "erasure.erased": "an erasure covers all that was erased, from an index of these rows",
    "external_changes.all_changed_ids": "all changes since the last batch",
    "external_changes.drop_changes": "the same",
    "external_changes.changes": "the same",
    "extractions.remove_orphans": "once a day, all answers about episodes that are gone",
    "extractions.remove_orphaned_summaries": "the same",
    "extractions.remove_orphaned_requests": "the same",
    "stage_file.add_erasure": "an erasure; there is a row for each rule",
    "stage_file.blank_places": "the same",
    "stage_file.blank_erasures": "an erasure; a firing drops the rows of its rule",
    "stage_file.untraced": "only `doctor` checks the notes",
    "stage_file.unlisted": "the same",
    "facts.all_facts": "a search without a condition",
    "facts.cited_episodes": "any fact but a mark may name an episode; only retention asks",
    "facts.count_facts": "a check of the tables counts all",
    "facts.count_limited_facts": "the deletion limit needs it; only batches with deletions ask",
    "erased_scopes.blank_log": "rows of an erased user may be anywhere",
    "erased_scopes.episodes_that_may_name": "rows of an erased user may be anywhere",
    "episode_log.is_renumbered": "once after VACUUM, which may number rows anew",
    "episode_log.renumber_log": "once rows were numbered anew, which VACUUM may do",
    "ledger.claims_with_references": "verification reads all",
    "ledger.all_evaluations": "a caller asks for the facts of all users at an instant",
    "ledger.all_references": "the same, and verification",
    "ledger.drop_quarantine_of_firing": "an undoing; people look through what is quarantined",
    "ledger.cap_served": "a person accepts the clock; rules are few",
    "ledger.cap_successes": "the same",
    "ledger.future_instants": "people look through what is quarantined, so it is not much",
    "ledger.future_facts": "once, at the start of the daemon",
    "ledger.future_claims": "a person withdraws them, once",
    "inspection.latest_claim": "status and the doctor read all keys",
    "ledger.future_of_rules": "people look through what is quarantined, so it is not much",
    "ledger.future_entries": "the same; only a backfill or a retry asks",
    "ledger.firings_of_run_before": "a person looks at a run; its firings may be anywhere",
    "ledger.firings_of_run": "a person undoes a run; its firings may be anywhere",
    "ledger.object_counts": "a person asks for what rules would do to all that there is",
    "ledger.keys": "once, when lineages are to be deeper",
    "ledger.last_mentioned": "verification reads all",
    "ledger.list_quarantine": "the list is what is asked for",
    "ledger.quarantine_by_rule": "people look through what is quarantined, so it is not much",
    "inspection.facts_by_user": "the alarm about a reduction counts all facts",
    "inspection.quarantined": "people look through what is quarantined, so it is not much",
    "inspection.future": "the doctor reads all timestamps, while it has time",
    "inspection.disagreements": "the doctor reads all, while it has time",
    "inspection.unresolved": "the doctor reads all, while it has time",
    "erased_content.facts": "the same, once anything was erased",
    "erased_content.ids": "the same, once an episode was erased by its id",
    "erased_content.scope_keys": "the same",
    "inspection.count_episodes": "health and status say how many there are",
    "inspection.count_facts": "the same",
    "migrations.own_columns": "the schema of a file is compared once for each connection",
    "migrations.own_objects": "the same",
}
"""Statements that read a whole table, and the reason."""

SMALL = {
    "pragma_table_info", "pragma_table_xinfo", "slumberd_batch", "slumberd_channels",
    "slumberd_erasure_key", "slumberd_erased_scopes", "slumberd_generations",
    "slumberd_held_batches", "slumberd_numbers", "slumberd_successes",
    "slumberd_rewriting", "slumberd_unfinished_erasures", "slumberd_watermark",
    "sqlite_master", "stage_rules",
}  # fmt: skip
"""Tables that do not grow with episodes: of rules, of channels, of restores, of the batch."""

STEPS = {"agents", "keys", "owners", "rules", "users", "(subquery-1)", "CONSTANT ROW"}
"""Names in plans that are not tables, but temporary results of a statement."""


def names(listed: dict[str, str]) -> list[str]:
    return [f"{file}.{name}" for file, line in listed.items() for name in line.split()]


def sql_of(name: str) -> str:
    file, _, statement = name.partition(".")
    sql = statements(file)[statement]
    return f"{sql}1)" if statement.startswith("select_by_") else sql  # a filter ends them


def is_definition(sql: str) -> bool:
    return re.match(r"(--.*\n)*(CREATE|DROP) ", sql) is not None


@pytest.fixture(scope="module")
def databases(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, sqlite3.Connection]]:
    folder = tmp_path_factory.mktemp("plans")
    asyncio.run(make(folder))
    with (
        closing(sqlite3.connect(folder / "memory.db")) as memory,
        closing(sqlite3.connect(folder / "facts.db")) as facts,
        closing(sqlite3.connect(":memory:")) as stages,
    ):
        found = {"memory.db": memory, "facts.db": facts, "stages.db": stages}
        for name, sql in statements("stage_file").items():
            if name.startswith("create_"):
                stages.execute(sql)
        memory.create_function("slumberd_with_offset", 1, str, deterministic=True)
        for name in ("slumberd_speaker", "slumberd_is_person"):
            memory.create_function(name, 2, max, deterministic=True)
        for connection in (memory, facts):
            for name in ("erased_scopes.create_erasure_key", "erased_scopes.create_erased_scopes"):
                connection.execute(sql_of(name))
        for name in ("create_batch", "create_view_by_scope", "create_view_by_content"):
            memory.execute(sql_of(f"filters.{name}"))
        memory.execute(sql_of("episode_log.create_rewriting"))
        facts.execute(sql_of("migrations.create_migrations"))
        yield found


async def make(folder: Path) -> None:
    async with (
        SQLiteMemoryStore(folder / "memory.db") as memory,
        SQLiteFactStore(folder / "facts.db") as facts,
    ):
        await memory.bootstrap()
        await facts.bootstrap()


def plan(databases: dict[str, sqlite3.Connection], name: str) -> list[str]:
    # Statements of inspection read either database.
    database = "memory.db" if name in OF_EPISODES else FILES[name.partition(".")[0]]
    return plan_of(databases[database], sql_of(name))


def plan_of(connection: sqlite3.Connection, sql: str) -> list[str]:
    by_name = dict.fromkeys(re.findall(r":(\w+)", sql))
    values = by_name or [None] * sql.count("?")
    return [step[3] for step in connection.execute(f"EXPLAIN QUERY PLAN {sql}", values)]


def read_whole(plan: list[str]) -> list[str]:
    """Return the steps that read a table whole; ``SEARCH`` without an index is that, too."""
    scans = [step for step in plan if re.match(r"SCAN |SEARCH \S+( \(|$)", step)]
    return [
        step
        for step in scans
        if "VIRTUAL TABLE" not in step
        and not {step.partition(" ")[2], step.split()[1]} & (SMALL | STEPS)
    ]


def sorts(plan: list[str]) -> list[str]:
    return [step for step in plan if "TEMP B-TREE" in step]


def test_every_file_of_statements_is_listed() -> None:
    assert {*files_of()} == {*FILES, *WHOLESALE}


def test_every_statement_is_in_one_of_the_lists() -> None:
    every = [
        f"{file}.{name}"
        for file in FILES
        for name, sql in statements(file).items()
        if not is_definition(sql)
    ]

    listed = [*names(FLAT), *names(FIRST), *names(FOUND), *WHOLE]

    assert sorted(listed) == sorted(every)


@of_each(lambda: names(FLAT))
def test_statement_of_constant_cost_reads_no_whole_table_and_sorts_none(
    name: str, databases: dict[str, sqlite3.Connection]
) -> None:
    steps = plan(databases, name)

    assert read_whole(steps) == []
    assert sorts(steps) == []


def test_search_for_cited_episodes_leaves_out_marks_by_index(
    databases: dict[str, sqlite3.Connection],
) -> None:
    steps = [step for step in plan(databases, "facts.cited_episodes") if " facts" in step]

    assert [step.partition(" (")[2] for step in steps] == ["fact_id>? AND fact_id<?)"]


@of_each(lambda: names(FIRST))
def test_statement_that_needs_only_the_first_rows_sorts_none(
    name: str, databases: dict[str, sqlite3.Connection]
) -> None:
    assert sorts(plan(databases, name)) == []
    assert re.search(r"\bLIMIT\b|\bEXISTS\b|max\((seq|version)\)", sql_of(name), re.IGNORECASE)


@of_each(lambda: names(FOUND))
def test_a_statement_sorts_only_what_an_index_finds(
    name: str, databases: dict[str, sqlite3.Connection]
) -> None:
    assert read_whole(plan(databases, name)) == []


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        pytest.param("SELECT 1 FROM facts WHERE agent = :agent", "SCAN facts", id="no index"),
        pytest.param(
            "SELECT 1 FROM facts AS f WHERE f.agent = :agent", "SCAN f", id="another name"
        ),
        pytest.param("SELECT count(*) FROM facts", "SCAN facts", id="a count"),
        pytest.param("SELECT max(last_seq) FROM slumberd_firings", "SEARCH", id="a maximum"),
        pytest.param(
            "SELECT payload FROM facts WHERE user = :user ORDER BY pinned_at",
            "USE TEMP B-TREE FOR ORDER BY",
            id="an order",
        ),
        pytest.param(
            "SELECT user, max(pinned_at) FROM facts GROUP BY user", "SCAN facts", id="a group"
        ),
    ],
)
def test_plan_that_reads_a_whole_table_is_found(
    databases: dict[str, sqlite3.Connection], sql: str, expected: str
) -> None:
    steps = plan_of(databases["facts.db"], sql)

    assert [step for step in read_whole(steps) + sorts(steps) if step.startswith(expected)]
