-- Read and write every table of slumberd's own whole, in the order of its key. Keys come first.

-- name: read_episodes
-- texts: lenient
SELECT rowid, id, scope_key, content, timestamp, metadata
FROM episodes
ORDER BY rowid

-- name: write_episodes
INSERT INTO episodes
  (rowid, id, scope_key, content, timestamp, metadata)
VALUES (?, ?, ?, ?, ?, ?)

-- name: read_episode_log
-- texts: escaped
SELECT seq, rid, eid
FROM slumberd_episode_log
ORDER BY seq

-- name: read_accesses
-- texts: lenient
SELECT accesses.eid, accesses.scope_key, accesses.count, accesses.last, accesses.held,
  episodes.content
FROM slumberd_accesses AS accesses
LEFT JOIN episodes
  ON episodes.id = accesses.eid
  AND episodes.scope_key = accesses.scope_key
ORDER BY accesses.eid

-- name: write_facts
INSERT INTO facts
  (fact_id, user, agent, payload, lineage, confidence, metadata, pinned_at)
VALUES (?, ?, ?, ?, ?, ?, ?, ?)

-- name: write_numbers
INSERT INTO slumberd_numbers
  (name, value)
VALUES (?, ?)

-- name: log_end
SELECT
  coalesce((SELECT seq FROM sqlite_sequence WHERE name = 'slumberd_episode_log'), 0),
  coalesce((SELECT seq FROM sqlite_sequence WHERE name = 'slumberd_episode_deletions'), 0)

-- name: clear_log_end
DELETE FROM sqlite_sequence

-- name: write_log_end
INSERT INTO sqlite_sequence (name, seq)
VALUES ('slumberd_episode_log', ?), ('slumberd_episode_deletions', ?)

-- name: clear_episode_deletions
DELETE FROM slumberd_episode_deletions

-- name: clear_numbers
DELETE FROM slumberd_numbers

-- name: count_external_changes
SELECT count(*)
FROM slumberd_external_changes

-- name: columns
SELECT name
FROM pragma_table_info(:table)

-- name: journal_in_memory
PRAGMA journal_mode = MEMORY

-- name: no_sync
PRAGMA synchronous = OFF

-- name: sort_in_files
PRAGMA temp_store = FILE

-- name: journal_ahead
PRAGMA journal_mode = WAL
