-- Read and write every table of a shard whole, in the order of its key. Keys come first.

-- name: read_episodes
SELECT rid, id, scope_key, content, timestamp, metadata
FROM episodes
ORDER BY rid

-- name: write_episodes
-- copy: int8 text text bytea text bytea
INSERT INTO episodes
  (rid, id, scope_key, content, timestamp, metadata)
VALUES (?, ?, ?, ?, ?, ?)

-- name: read_episode_log
-- What was put and has no number yet comes last, with the numbers that it gets next.
SELECT seq, rid, eid
FROM (
  SELECT seq, rid, eid
  FROM slumberd_episode_log
  UNION ALL
  SELECT ends.seq + row_number() OVER (ORDER BY inbox.n), inbox.rid, inbox.eid
  FROM inbox AS inbox
  CROSS JOIN log_ends AS ends
) AS versions
ORDER BY seq

-- name: read_accesses
SELECT eid, scope_key, count, last, held
FROM slumberd_accesses
ORDER BY eid

-- name: write_facts
-- copy: text text text bytea bytea float8 bytea text text text text float8
INSERT INTO facts
  (fact_id, "user", agent, payload, lineage, confidence, metadata, pinned_at, subject,
   predicate, object, object_number)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)

-- name: write_numbers
-- many: each parameter is an array
INSERT INTO slumberd_numbers (name, value)
SELECT name, value
FROM unnest(?::text[], ?::bigint[]) AS given(name, value)
ON CONFLICT (name) DO UPDATE SET
  value = excluded.value

-- name: log_end
SELECT seq + (SELECT count(*) FROM inbox), deletion
FROM log_ends

-- name: write_log_end
UPDATE log_ends
SET seq = ?, deletion = ?

-- name: last_rid
SELECT max(rid)
FROM episodes

-- name: continue_episode_numbers
SELECT setval('episode_numbers', greatest(?::bigint, nextval('episode_numbers')))

-- name: lock_log_end
SELECT seq
FROM log_ends
FOR UPDATE

-- name: lock_epoch
SELECT value
FROM slumberd_numbers
WHERE name = 'epoch'
FOR UPDATE

-- name: columns
SELECT attname::text
FROM pg_attribute
WHERE attrelid = to_regclass(:table::text)
  AND attnum > 0
  AND NOT attisdropped

-- name: no_idle_timeout
SET LOCAL idle_in_transaction_session_timeout = 0

-- name: become_owner
SET LOCAL ROLE slumberd_owner

-- name: log_no_episodes
-- The owner only; no trigger logs the rows that are copied.
ALTER TABLE episodes DISABLE TRIGGER USER

-- name: log_episodes
ALTER TABLE episodes ENABLE TRIGGER USER

-- name: become_login
RESET ROLE

-- name: first_filled
SELECT name
FROM (
  VALUES
    ('episodes', EXISTS (SELECT 1 FROM episodes)),
    ('episode_log', EXISTS (SELECT 1 FROM slumberd_episode_log)),
    ('episode_deletions', EXISTS (SELECT 1 FROM slumberd_episode_deletions)),
    ('accesses', EXISTS (SELECT 1 FROM slumberd_accesses)),
    ('extractions', EXISTS (SELECT 1 FROM slumberd_extractions)),
    ('model_summaries', EXISTS (SELECT 1 FROM slumberd_model_summaries)),
    ('model_requests', EXISTS (SELECT 1 FROM slumberd_model_requests)),
    ('model_usage', EXISTS (SELECT 1 FROM slumberd_model_usage)),
    ('facts', EXISTS (SELECT 1 FROM facts)),
    ('keys', EXISTS (SELECT 1 FROM slumberd_keys)),
    ('firings', EXISTS (SELECT 1 FROM slumberd_firings)),
    ('ledger', EXISTS (SELECT 1 FROM slumberd_ledger)),
    ('claim_references', EXISTS (SELECT 1 FROM slumberd_references)),
    ('watermark', EXISTS (SELECT 1 FROM slumberd_watermark)),
    ('successes', EXISTS (SELECT 1 FROM slumberd_successes)),
    ('quarantine', EXISTS (SELECT 1 FROM slumberd_quarantine)),
    ('channels', EXISTS (SELECT 1 FROM slumberd_channels)),
    ('generations', EXISTS (SELECT 1 FROM slumberd_generations)),
    ('held_batches', EXISTS (SELECT 1 FROM slumberd_held_batches)),
    ('unfinished_erasures', EXISTS (SELECT 1 FROM slumberd_unfinished_erasures)),
    ('inbox', EXISTS (SELECT 1 FROM inbox)),
    ('erased_scopes', EXISTS (SELECT 1 FROM slumberd_erasure_key))
) AS tables(name, is_filled)
WHERE is_filled
LIMIT 1
