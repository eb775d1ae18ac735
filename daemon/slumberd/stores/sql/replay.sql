-- name: attach
ATTACH DATABASE ? AS live

-- name: detach
DETACH DATABASE live

-- name: in_memory_journal
PRAGMA journal_mode = MEMORY

-- name: no_sync
PRAGMA synchronous = OFF

-- name: wal_journal
PRAGMA journal_mode = WAL

-- name: copy_ledger
INSERT INTO main.slumberd_ledger
  (seq, delta, firing, what, kind, reason, version, key_id, at, fact_id, replaces, salt,
   payload, commitment, chain)
SELECT seq, delta, firing, what, kind, reason, version, key_id, at, fact_id, replaces, salt,
  payload, commitment, chain
FROM live.slumberd_ledger
ORDER BY seq

-- name: copy_firings
INSERT INTO main.slumberd_firings
  (n, rule, rule_hash, cause, at, last_seq, generation, upto_seq, upto_eid, counts)
SELECT n, rule, rule_hash, cause, at, last_seq, generation, upto_seq, upto_eid, counts
FROM live.slumberd_firings
ORDER BY n

-- name: copy_channels
INSERT INTO main.slumberd_channels (seq, multi_valued)
SELECT seq, multi_valued
FROM live.slumberd_channels

-- name: copy_watermark
INSERT INTO main.slumberd_watermark (rule, seq, eid, served)
SELECT rule, seq, eid, served
FROM live.slumberd_watermark

-- name: copy_quarantine
INSERT INTO main.slumberd_quarantine
  (rule, channel, eid, version, owner, reason, detail, seq)
SELECT rule, channel, eid, version, owner, reason, detail, seq
FROM live.slumberd_quarantine

-- name: copy_generations
INSERT INTO main.slumberd_generations (generation, after)
SELECT generation, after
FROM live.slumberd_generations

-- name: copy_held
INSERT INTO main.slumberd_held (rule, n, upto_seq, upto_eid, problem, approved)
SELECT rule, n, upto_seq, upto_eid, problem, approved
FROM live.slumberd_held

-- name: copy_names
INSERT INTO main.slumberd_names (name, namer)
SELECT name, namer
FROM live.slumberd_names

-- name: live_has_forgotten
SELECT 1
FROM live.sqlite_master
WHERE name = 'slumberd_forgotten'

-- name: live_has_successes
SELECT 1
FROM live.sqlite_master
WHERE name = 'slumberd_successes'

-- name: successes
INSERT INTO main.slumberd_successes (rule, at)
SELECT rule, at
FROM live.slumberd_successes

-- name: keep_key
INSERT INTO main.slumberd_forgetting (id, key)
SELECT id, key
FROM live.slumberd_forgetting

-- name: keep_moments
INSERT INTO main.slumberd_forgotten (digest, moment)
SELECT digest, moment
FROM live.slumberd_forgotten

-- name: copy_numbers
INSERT OR REPLACE INTO main.slumberd_numbers (name, value)
SELECT name, value
FROM live.slumberd_numbers

-- name: firings
SELECT n, rule, at
FROM main.slumberd_firings
ORDER BY n

-- name: rows
SELECT seq, delta, firing, what, kind, reason, version, key_id, at, fact_id, replaces,
  salt IS NULL, payload
FROM main.slumberd_ledger
ORDER BY seq

-- name: count_facts
SELECT count(*)
FROM main.facts

-- name: changed_facts
SELECT fact_id
FROM (
  SELECT fact_id, user, agent, payload, lineage, confidence, metadata, pinned_at
  FROM main.facts
  EXCEPT
  SELECT fact_id, user, agent, payload, lineage, confidence, metadata, pinned_at
  FROM live.facts
)
UNION
SELECT fact_id
FROM (
  SELECT fact_id, user, agent, payload, lineage, confidence, metadata, pinned_at
  FROM live.facts
  EXCEPT
  SELECT fact_id, user, agent, payload, lineage, confidence, metadata, pinned_at
  FROM main.facts
)
ORDER BY fact_id

-- name: others_facts
SELECT fact_id
FROM live.slumberd_touched
UNION
SELECT eid
FROM live.slumberd_quarantine
WHERE rule = :rule
  AND reason = :reason

-- name: changed_keys
SELECT key_id
FROM (
  SELECT key, slot, key_id, top_at, top_rank, top_id, top_fact, top_object, trail
  FROM main.slumberd_keys
  WHERE top_at IS NOT NULL
  EXCEPT
  SELECT key, slot, key_id, top_at, top_rank, top_id, top_fact, top_object, trail
  FROM live.slumberd_keys
)
UNION
SELECT key_id
FROM (
  SELECT key, slot, key_id, top_at, top_rank, top_id, top_fact, top_object, trail
  FROM live.slumberd_keys
  WHERE top_at IS NOT NULL
  EXCEPT
  SELECT key, slot, key_id, top_at, top_rank, top_id, top_fact, top_object, trail
  FROM main.slumberd_keys
)
ORDER BY key_id
