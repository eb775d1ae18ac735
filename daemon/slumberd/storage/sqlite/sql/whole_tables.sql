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

-- name: write_episode_log
INSERT INTO slumberd_episode_log
  (seq, rid, eid)
VALUES (?, ?, ?)

-- name: write_episode_deletions
INSERT INTO slumberd_episode_deletions
  (number, rid)
VALUES (?, ?)

-- name: read_accesses
-- texts: lenient
SELECT accesses.eid, accesses.scope_key, accesses.count, accesses.last, accesses.held,
  episodes.content
FROM slumberd_accesses AS accesses
LEFT JOIN episodes
  ON episodes.id = accesses.eid
  AND episodes.scope_key = accesses.scope_key
ORDER BY accesses.eid

-- name: write_accesses
INSERT INTO slumberd_accesses
  (eid, scope_key, count, last, held)
VALUES (?, ?, ?, ?, ?)

-- name: write_extractions
INSERT INTO slumberd_extractions
  (key, eid, model, status, triples, dropped, problem, answer, attempts, at)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)

-- name: write_model_summaries
INSERT INTO slumberd_model_summaries
  (key, eid, model, status, text, problem, attempts, at)
VALUES (?, ?, ?, ?, ?, ?, ?, ?)

-- name: write_model_requests
INSERT INTO slumberd_model_requests
  (eid, id, scope_key, key, request)
VALUES (?, ?, ?, ?, ?)

-- name: write_model_usage
INSERT INTO slumberd_model_usage
  (day, calls, tokens_in, tokens_out, cost_micros)
VALUES (?, ?, ?, ?, ?)

-- name: write_facts
INSERT INTO facts
  (fact_id, user, agent, payload, lineage, confidence, metadata, pinned_at)
VALUES (?, ?, ?, ?, ?, ?, ?, ?)

-- name: write_keys
INSERT INTO slumberd_keys
  (key, slot, key_id, winner_at, winner_rank, winner_id, winner_part, winner_fact, winner_object,
   retractions, replaced)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)

-- name: write_firings
INSERT INTO slumberd_firings
  (n, rule, rule_hash, cause, at, last_seq, generation, upto_seq, upto_eid, counts)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)

-- name: write_ledger
INSERT INTO slumberd_ledger
  (seq, delta, firing, what, kind, reason, version, key_id, at, fact_id, replaces, salt, payload,
   commitment, chain)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)

-- name: write_claim_references
INSERT INTO slumberd_references
  (referenced, referrer)
VALUES (?, ?)

-- name: write_watermark
INSERT INTO slumberd_watermark
  (rule, seq, eid, served)
VALUES (?, ?, ?, ?)

-- name: write_successes
INSERT INTO slumberd_successes
  (rule, at)
VALUES (?, ?)

-- name: write_quarantine
INSERT INTO slumberd_quarantine
  (rule, channel, eid, version, owner, reason, detail, seq)
VALUES (?, ?, ?, ?, ?, ?, ?, ?)

-- name: write_channels
INSERT INTO slumberd_channels
  (seq, multi_valued)
VALUES (?, ?)

-- name: write_generations
INSERT INTO slumberd_generations
  (generation, after)
VALUES (?, ?)

-- name: write_held_batches
INSERT INTO slumberd_held_batches
  (rule, n, upto_seq, upto_eid, problem, approved)
VALUES (?, ?, ?, ?, ?, ?)

-- name: write_unfinished_erasures
INSERT INTO slumberd_unfinished_erasures
  (scope, eids, moment, by)
VALUES (?, ?, ?, ?)

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
