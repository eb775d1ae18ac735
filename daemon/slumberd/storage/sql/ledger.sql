-- name: last_row
SELECT seq, chain
FROM slumberd_ledger
ORDER BY seq DESC
LIMIT 1

-- name: chain_at
SELECT chain
FROM slumberd_ledger
WHERE seq = ?

-- name: rules_after
SELECT rule
FROM slumberd_firings
WHERE n > :after

-- name: erasures_after
SELECT firings.n, ledger.chain
FROM slumberd_firings AS firings
INNER JOIN slumberd_ledger AS ledger ON ledger.seq = firings.n
WHERE firings.rule = :rule
  AND firings.n > :after

-- name: rows_of_channels_after
-- texts: lenient
SELECT fact_id, replaces, payload
FROM slumberd_ledger
WHERE seq > :after
  AND (
    (fact_id >= '@' AND fact_id < 'A')
    OR replaces LIKE '%"@%'
  )

-- name: number
SELECT value
FROM slumberd_numbers
WHERE name = ?

-- name: add_number
INSERT INTO slumberd_numbers (name, value)
VALUES (:name, :value)
ON CONFLICT DO NOTHING

-- name: set_number
UPDATE slumberd_numbers
SET value = :value
WHERE name = :name

-- name: raise_number
UPDATE slumberd_numbers
SET value = :value
WHERE name = :name
  AND value < :value

-- name: generations
SELECT after, generation
FROM slumberd_generations
ORDER BY generation DESC

-- name: add_generation
INSERT INTO slumberd_generations (generation, after)
VALUES (?, ?)

-- name: held_batches
SELECT rule, n, upto_seq, upto_eid, problem, approved
FROM slumberd_held_batches

-- name: add_held_batch
INSERT INTO slumberd_held_batches (rule, n, upto_seq, upto_eid, problem, approved)
VALUES (?, ?, ?, ?, ?, 0)

-- name: approve_held_batch
UPDATE slumberd_held_batches
SET approved = 1
WHERE rule = ?

-- name: drop_held_batch
DELETE FROM slumberd_held_batches
WHERE rule = :rule
  AND upto_seq <= :seq

-- name: add_firing
INSERT INTO slumberd_firings
  (n, rule, rule_hash, cause, at, last_seq, generation, upto_seq, upto_eid, counts)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)

-- name: add_row
-- copy: int8 int8 int8 int4 int4 text int8 int8 int8 text text bytea bytea bytea bytea
INSERT INTO slumberd_ledger
  (seq, delta, firing, what, kind, reason, version, key_id, at, fact_id, replaces, payload,
   salt, commitment, chain)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)

-- name: all_evaluations
SELECT ledger.fact_id, ledger.seq, firings.rule, ledger.version, ledger.what, ledger.at,
  ledger.payload, firings.at, ledger.firing
FROM slumberd_ledger AS ledger
INNER JOIN slumberd_firings AS firings ON firings.n = ledger.firing
WHERE ledger.what IN (1, 2, 3, 6)
  AND ledger.fact_id IS NOT NULL
  AND ledger.seq >= :first
  AND ledger.seq <= :upto
ORDER BY ledger.seq

-- name: evaluated_in_firing
SELECT ledger.fact_id
FROM slumberd_firings AS firings
INNER JOIN slumberd_ledger AS ledger
  ON ledger.seq > firings.n
  AND ledger.seq <= firings.last_seq
WHERE firings.n = :firing
  AND firings.rule = :rule
  AND ledger.what IN (1, 2, 3, 6)
  AND ledger.fact_id IS NOT NULL
GROUP BY ledger.fact_id
ORDER BY min(ledger.seq)

-- name: firing
SELECT rule, at, generation
FROM slumberd_firings
WHERE n = ?

-- name: firings_of_run
SELECT firings.n, firings.rule
FROM slumberd_firings AS firings
INNER JOIN slumberd_ledger AS own ON own.seq = firings.n
WHERE firings.last_seq > firings.n
  AND firings.generation >= 0
  AND
  -- include: is_of_run
ORDER BY firings.n

-- name: firings_since
SELECT firings.n, firings.rule
-- include: from_rules
INNER JOIN slumberd_firings AS firings ON firings.rule = wanted.value
WHERE firings.last_seq > firings.n
  AND firings.generation >= 0
  AND
  -- include: recorded_at
  >= :since
ORDER BY firings.n

-- name: any_firing_of
SELECT EXISTS (
  SELECT 1
  -- include: from_rules
  INNER JOIN slumberd_firings AS firings ON firings.rule = wanted.value
  WHERE firings.generation >= 0
)

-- name: undone_by
SELECT firings.n,
  -- include: undone_firing
FROM slumberd_firings AS firings
INNER JOIN slumberd_ledger AS own ON own.seq = firings.n
WHERE firings.rule = :undo
  AND firings.generation >= 0
ORDER BY firings.n DESC

-- name: rules_of_firings
SELECT firings.n, firings.rule
-- include: from_numbers
INNER JOIN slumberd_firings AS firings ON firings.n = wanted.value

-- name: drop_quarantine_of_firing
DELETE FROM slumberd_quarantine
WHERE seq > (SELECT n FROM slumberd_firings WHERE n = :firing)
  AND seq <= (SELECT last_seq FROM slumberd_firings WHERE n = :firing)

-- name: keys
SELECT key
FROM slumberd_keys
WHERE slot = ''

-- name: watermark
SELECT seq, eid
FROM slumberd_watermark
WHERE rule = ?

-- name: set_watermark
INSERT INTO slumberd_watermark (rule, seq, eid, served)
VALUES (:rule, :seq, :eid, :served)
ON CONFLICT (rule) DO UPDATE SET
  seq = excluded.seq,
  eid = excluded.eid

-- name: first_watermark
INSERT INTO slumberd_watermark (rule, seq, eid, served)
VALUES (:rule, :seq, :eid, :served)
ON CONFLICT (rule) DO NOTHING

-- name: watermarks
SELECT rule, seq, eid, served
FROM slumberd_watermark

-- name: batch_ends
SELECT upto_seq, upto_eid
FROM slumberd_firings
WHERE rule = ?
  AND generation >= 0
ORDER BY n DESC

-- name: last_generation
SELECT generation
FROM slumberd_firings
WHERE rule = ?
  AND generation >= 0
ORDER BY n DESC
LIMIT 1

-- name: served
SELECT served
FROM slumberd_watermark
WHERE rule = ?

-- name: set_served
UPDATE slumberd_watermark
SET served = :served
WHERE rule = :rule
  AND served < :served

-- name: correct_served
UPDATE slumberd_watermark
SET served = :served
WHERE rule = :rule
  AND served > :served

-- name: cap_served
UPDATE slumberd_watermark
SET served = :at
WHERE served > :at

-- name: cap_successes
UPDATE slumberd_successes
SET at = :at
WHERE at > :at

-- name: set_success
INSERT INTO slumberd_successes (rule, at)
VALUES (:rule, :at)
ON CONFLICT (rule) DO UPDATE SET
  at = excluded.at

-- name: successes
SELECT rule, at
FROM slumberd_successes

-- name: counts_after
SELECT n, rule, counts
FROM slumberd_firings
WHERE n > :after
ORDER BY n
LIMIT :limit

-- name: last_seq_by
SELECT last_seq
FROM slumberd_firings
WHERE at <= ?
  AND generation >= 0
ORDER BY n DESC
LIMIT 1

-- name: channels
SELECT multi_valued
FROM slumberd_channels
WHERE seq <= ?
ORDER BY seq DESC
LIMIT 1

-- name: firing_document
SELECT payload
FROM slumberd_ledger
WHERE seq = (
  SELECT n
  FROM slumberd_firings
  WHERE n <= ?
  ORDER BY n DESC
  LIMIT 1
)

-- name: add_channels
INSERT INTO slumberd_channels (seq, multi_valued)
VALUES (?, ?)

-- name: quarantined
SELECT DISTINCT eid
FROM slumberd_quarantine
WHERE rule = ?
ORDER BY eid

-- name: future_of_rules
SELECT rule, min(detail)
FROM slumberd_quarantine
WHERE reason = 'future'
GROUP BY rule

-- name: future_facts
SELECT winner_fact, winner_at
FROM slumberd_keys
WHERE winner_at > :latest
ORDER BY winner_at DESC, winner_fact

-- name: future_claims
SELECT DISTINCT fact_id
FROM slumberd_ledger
WHERE what = 1
  AND at > :latest
  AND fact_id IS NOT NULL
ORDER BY fact_id

-- name: future_instants
SELECT rule, min(detail)
FROM slumberd_quarantine
WHERE reason = 'future'
GROUP BY rule, eid
ORDER BY rule, min(detail)

-- name: payload
SELECT payload
FROM slumberd_ledger
WHERE seq = ?

-- name: future_upto
SELECT eid
FROM slumberd_quarantine
WHERE rule = :rule
  AND reason = 'future'
  AND detail <= :latest
GROUP BY eid
ORDER BY min(detail), eid
LIMIT :limit

-- name: future_entries
SELECT rule, channel, eid, version
FROM slumberd_quarantine
WHERE rule = :rule
  AND reason = 'future'
  AND eid
  -- include: in_ids

-- name: quarantine_by_rule
SELECT rule, count(DISTINCT eid)
FROM slumberd_quarantine
GROUP BY rule

-- name: list_quarantine
SELECT rule, channel, eid, reason, detail, seq
FROM slumberd_quarantine
ORDER BY rule, channel, eid

-- name: quarantine_after
SELECT rule, channel, eid, reason, detail, seq, owner
FROM slumberd_quarantine
WHERE (rule, channel, eid) > (:rule, :channel, :eid)
ORDER BY rule, channel, eid
LIMIT :limit

-- name: quarantine_of_rule_after
SELECT rule, channel, eid, reason, detail, seq, owner
FROM slumberd_quarantine
WHERE rule = :rule
  AND (channel, eid) > (:channel, :eid)
ORDER BY channel, eid
LIMIT :limit

-- name: quarantine_of_episodes_after
SELECT rule, channel, eid, reason, detail, seq, owner
FROM slumberd_quarantine
WHERE rule = :rule
  AND (channel, eid) > (:channel, :eid)
  AND eid
  -- include: in_ids
ORDER BY channel, eid
LIMIT :limit

-- name: last_firings
WITH RECURSIVE rules(rule) AS (
  SELECT min(rule)
  FROM slumberd_firings
  UNION ALL
  SELECT (SELECT min(firings.rule) FROM slumberd_firings AS firings WHERE firings.rule > rules.rule)
  FROM rules
  WHERE rule IS NOT NULL
)
SELECT firings.rule, firings.n, firings.at
FROM rules
INNER JOIN slumberd_firings AS firings
  ON firings.n = (
    SELECT max(last.n)
    FROM slumberd_firings AS last
    WHERE last.rule = rules.rule
      AND last.generation >= 0
  )

-- part: record_columns
  ledger.seq, ledger.delta, ledger.firing, ledger.what, ledger.kind, ledger.reason,
  ledger.version, ledger.key_id, ledger.at, ledger.fact_id, ledger.replaces, ledger.payload,
  firings.rule, firings.rule_hash, firings.cause,
  -- include: recorded_at
  AS recorded_at,
  CASE WHEN ledger.what IN (4, 5, 6) THEN (
    SELECT sibling.payload
    FROM slumberd_ledger AS sibling
    WHERE sibling.fact_id = ledger.fact_id
      AND (sibling.what = 1 OR (ledger.what = 4 AND sibling.what IN (2, 3, 8)))
      AND sibling.payload IS NOT NULL
    LIMIT 1
  ) END,
  -- include: run

-- part: rows_with_firings
FROM slumberd_ledger AS ledger
INNER JOIN slumberd_firings AS firings ON firings.n = ledger.firing
LEFT JOIN slumberd_ledger AS own ON own.seq = firings.n

-- name: records
SELECT
  -- include: record_columns
-- include: rows_with_firings
WHERE ledger.seq > :after
ORDER BY ledger.seq
LIMIT :limit

-- name: records_of_fact
SELECT
  -- include: record_columns
-- include: rows_with_firings
WHERE ledger.fact_id = :fact_id
ORDER BY ledger.seq

-- name: detailed_records
SELECT own.payload,
  -- include: record_columns
-- include: rows_of_facts
ORDER BY ledger.seq

-- name: facts_by_id
SELECT fact_id, "user", agent, payload, lineage, confidence, pinned_at, metadata
FROM facts
WHERE fact_id
  -- include: in_ids

-- name: last_counts
SELECT counts
FROM slumberd_firings
WHERE rule = ?
  AND length(counts) > 2 -- not {}
ORDER BY n DESC
LIMIT 1

-- name: latest_batches
SELECT n, last_seq, upto_seq, counts
FROM slumberd_firings
WHERE rule = :rule
  AND length(counts) > 2 -- not {}
ORDER BY n DESC
LIMIT :limit

-- name: rows_to_export
-- texts: bytes
SELECT seq, delta, firing, what, kind, reason, version, key_id, at, fact_id, replaces, payload,
  salt, commitment, chain
FROM slumberd_ledger
WHERE seq BETWEEN :first AND :last
ORDER BY seq

-- name: hash_links
-- texts: bytes
SELECT seq, delta, firing, version, what, kind, reason, commitment, chain
FROM slumberd_ledger
WHERE seq BETWEEN :first AND :last
ORDER BY seq

-- name: link_before
SELECT seq, chain
FROM slumberd_ledger
WHERE seq < :seq
ORDER BY seq DESC
LIMIT 1

-- name: count_rows_before
SELECT count(*)
FROM slumberd_ledger
WHERE seq < :seq

-- name: firings_from
-- texts: bytes
SELECT n, rule, rule_hash, cause, at, last_seq, generation, upto_seq, counts
FROM slumberd_firings
WHERE n >= :first
ORDER BY n

-- name: last_firing_before
-- texts: bytes
SELECT n, rule, rule_hash, cause, at, last_seq, generation, upto_seq, counts
FROM slumberd_firings
WHERE n < :first
ORDER BY n DESC
LIMIT 1

-- name: channels_between
-- texts: bytes
SELECT seq, multi_valued
FROM slumberd_channels
WHERE seq BETWEEN :first AND :last

-- name: firing_rows_of_rule
SELECT ledger.seq, ledger.payload
FROM slumberd_firings AS firings
INNER JOIN slumberd_ledger AS ledger ON ledger.seq = firings.n
WHERE firings.rule = ?
  AND firings.generation >= 0
ORDER BY firings.n DESC

-- name: chain
SELECT chain
FROM slumberd_ledger
WHERE seq = ?

-- name: last_mentioned
SELECT max(seq)
FROM (
  SELECT value AS seq
  FROM slumberd_numbers
  WHERE name = 'logged'
    OR substr(name, 1, 9) = 'asserted:'
  UNION ALL
  SELECT max(seq)
  FROM slumberd_quarantine
  UNION ALL
  SELECT max(key_id)
  FROM slumberd_keys
) AS mentioned

-- name: all_references
-- texts: escaped
SELECT referenced, referrer
FROM slumberd_references

-- name: whole_rows
SELECT ledger.seq, ledger.delta, ledger.firing, ledger.what, ledger.kind, ledger.reason,
  ledger.version, ledger.key_id, ledger.at, ledger.fact_id, ledger.replaces, ledger.payload,
  ledger.salt, ledger.commitment, ledger.chain,
  firings.rule, firings.rule_hash, firings.cause, firings.at
FROM slumberd_ledger AS ledger
LEFT JOIN slumberd_firings AS firings ON firings.n = ledger.firing
WHERE ledger.seq > :after
ORDER BY ledger.seq
LIMIT :limit

-- part: firing_columns
  firings.n, firings.rule, firings.cause,
  -- include: recorded_at
  AS recorded_at, firings.last_seq, firings.counts, own.payload

-- name: firings_before
SELECT
  -- include: firing_columns
FROM slumberd_firings AS firings
LEFT JOIN slumberd_ledger AS own ON own.seq = firings.n
WHERE firings.n < :before
  AND firings.generation >= 0
  AND
  -- include: recorded_at
  <= :upto
ORDER BY firings.n DESC
LIMIT :limit

-- name: firings_of_rule_before
SELECT
  -- include: firing_columns
FROM slumberd_firings AS firings
LEFT JOIN slumberd_ledger AS own ON own.seq = firings.n
WHERE firings.rule = :rule
  AND firings.n < :before
  AND firings.generation >= 0
  AND
  -- include: recorded_at
  <= :upto
ORDER BY firings.n DESC
LIMIT :limit

-- name: firings_of_run_before
SELECT
  -- include: firing_columns
FROM slumberd_firings AS firings
INNER JOIN slumberd_ledger AS own ON own.seq = firings.n
WHERE firings.n < :before
  AND firings.generation >= 0
  AND
  -- include: recorded_at
  <= :upto
  AND
  -- include: is_of_run
ORDER BY firings.n DESC

-- name: undone_after
SELECT firings.n,
  -- include: undone_firing
FROM slumberd_firings AS firings
INNER JOIN slumberd_ledger AS own ON own.seq = firings.n
WHERE firings.rule = :undo
  AND firings.generation >= 0
  AND firings.n > :after
ORDER BY firings.n DESC

-- name: end_of_firing
SELECT last_seq
FROM slumberd_firings
WHERE n <= ?
ORDER BY n DESC
LIMIT 1

-- name: last_of_firings
SELECT max(n)
FROM slumberd_firings
WHERE rule = ?
  AND generation >= 0

-- name: owned_rows
SELECT ledger.firing, firings.rule,
  -- include: recorded_at
  AS recorded_at, ledger.kind, ledger.reason, ledger.fact_id,
  CASE WHEN ledger.what IN (4, 5, 6) THEN (
    SELECT sibling.payload
    FROM slumberd_ledger AS sibling
    WHERE sibling.fact_id = ledger.fact_id
      AND (sibling.what = 1 OR (ledger.what = 4 AND sibling.what IN (2, 3, 8)))
      AND sibling.payload IS NOT NULL
    LIMIT 1
  ) END,
  ledger.payload, ledger.key_id
FROM slumberd_ledger AS ledger
INNER JOIN slumberd_firings AS firings ON firings.n = ledger.firing
WHERE ledger.seq > :after
  AND ledger.seq <= :upto
ORDER BY ledger.seq

-- name: last_moved_by
SELECT last_seq
FROM slumberd_firings
WHERE n >= :first
  AND n < :arrival
  AND generation < 0
  AND upto_seq <= :at
ORDER BY n DESC
LIMIT 1
