-- name: drop_number
DELETE FROM slumberd_schema

-- name: old_objects
SELECT name, type
FROM sqlite_master
WHERE type IN ('index', 'trigger')
  AND name LIKE 'slumberd!_%' ESCAPE '!'

-- name: old_tables
SELECT name
FROM sqlite_master
WHERE type = 'table'
  AND name LIKE 'slumberd!_%' ESCAPE '!'
  AND name != 'slumberd_schema'

-- name: carried_tables
SELECT name
FROM sqlite_master
WHERE type = 'table'
  AND name LIKE 'carried!_%' ESCAPE '!'

-- name: forget_changes
DELETE FROM slumberd_external_changes

-- name: forget_numbers
DELETE FROM slumberd_numbers

-- name: carry_firings
INSERT INTO slumberd_firings
  (n, rule, rule_hash, cause, at, last_seq, generation, upto_seq, upto_eid, counts)
SELECT n,
  CASE rule
    WHEN '@hand' THEN '@manual'
    WHEN '@forget' THEN '@erasure'
    ELSE rule
  END,
  rule_hash, cause, at, last_seq, generation, upto_seq, upto_eid, counts
FROM carried_firings
ORDER BY n

-- name: carry_references
INSERT INTO slumberd_references (referenced, referrer)
SELECT name, namer
FROM carried_names

-- name: carry_watermark
INSERT INTO slumberd_watermark (rule, seq, eid, served)
SELECT rule, seq, eid, served
FROM carried_watermark

-- name: carry_successes
INSERT INTO slumberd_successes (rule, at)
SELECT rule, at
FROM carried_successes

-- name: carry_quarantine
INSERT INTO slumberd_quarantine
  (rule, channel, eid, version, owner, reason, detail, seq)
SELECT
  CASE rule
    WHEN '@hand' THEN '@manual'
    ELSE rule
  END,
  channel, eid, version, owner, reason, detail, seq
FROM carried_quarantine

-- name: carry_channels
INSERT INTO slumberd_channels (seq, multi_valued)
SELECT seq, multi_valued
FROM carried_channels

-- name: carry_generations
INSERT INTO slumberd_generations (generation, after)
SELECT generation, after
FROM carried_generations

-- name: carry_held_batches
INSERT INTO slumberd_held_batches (rule, n, upto_seq, upto_eid, problem, approved)
SELECT rule, n, upto_seq, upto_eid, problem, approved
FROM carried_held

-- name: carry_unfinished_erasures
INSERT INTO slumberd_unfinished_erasures (scope, eids, moment, by)
SELECT scope, eids, moment, by
FROM carried_unfinished

-- name: carry_numbers
INSERT INTO slumberd_numbers (name, value)
SELECT name, value
FROM carried_numbers

-- name: carry_external_changes
INSERT INTO slumberd_external_changes (fact_id)
SELECT fact_id
FROM carried_touched

-- name: carry_erasure_key
INSERT INTO slumberd_erasure_key (id, key)
SELECT id, key
FROM carried_forgetting

-- name: carry_erased_scopes
INSERT INTO slumberd_erased_scopes (digest, moment)
SELECT digest, moment
FROM carried_forgotten

-- name: ledger
SELECT seq, delta, firing, what, kind, reason, version, key_id, at, fact_id, replaces, payload,
  salt, commitment, chain
FROM carried_ledger
ORDER BY seq

-- name: keys
SELECT key, slot, key_id, top_at, top_rank, top_id, top_fact, top_object, reach, trail
FROM carried_keys

-- name: manual_facts
SELECT fact_id, lineage
FROM facts
WHERE instr(lineage, CAST('"@hand"' AS BLOB)) > 0

-- name: set_lineage
UPDATE facts
SET lineage = :lineage
WHERE fact_id = :fact_id

-- name: count_facts
SELECT count(*)
FROM facts

-- name: count_edits
SELECT count(*)
FROM slumberd_firings
WHERE rule = '@manual'

-- name: count_erased_scopes
SELECT count(*)
FROM slumberd_erased_scopes
