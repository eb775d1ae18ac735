-- A join of many values with a large table has the form
--   FROM unnest(:values) AS wanted(value) CROSS JOIN LATERAL (SELECT ... OFFSET 0) AS found
-- `OFFSET 0` keeps the planner from reading the table first and comparing each row with each
-- value. It does so in a new database, which has no statistics yet.

-- name: last_row
SELECT seq, chain
FROM slumberd_ledger
ORDER BY seq DESC
LIMIT 1

-- name: end
SELECT
  last.seq,
  last.chain,
  (
    SELECT at
    FROM slumberd_firings
    ORDER BY n DESC
    LIMIT 1
  ),
  (
    SELECT value
    FROM slumberd_numbers
    WHERE name = 'key'
  ),
  (
    SELECT multi_valued
    FROM slumberd_channels
    ORDER BY seq DESC
    LIMIT 1
  ),
  EXISTS (
    SELECT 1
    FROM slumberd_quarantine
  ),
  EXISTS (
    SELECT 1
    FROM slumberd_erasure_key
  ),
  (
    SELECT coalesce(
      json_agg(json_build_array(generation, after) ORDER BY generation DESC), '[]'
    )::text
    FROM slumberd_generations
  )
FROM (
  SELECT 1
) AS always
LEFT JOIN (
  SELECT seq, chain
  FROM slumberd_ledger
  ORDER BY seq DESC
  LIMIT 1
) AS last ON true

-- name: chain_at
SELECT chain
FROM slumberd_ledger
WHERE seq = ?

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
SET value = greatest(value, :value)
WHERE name = :name

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
COPY slumberd_ledger
  (seq, delta, firing, what, kind, reason, version, key_id, at, fact_id, replaces, payload,
   salt, commitment, chain)
FROM STDIN (FORMAT BINARY)

-- name: add_reference
-- many: each parameter is an array
INSERT INTO slumberd_references (referenced, referrer)
SELECT referenced, referrer
FROM unnest(?::text[], ?::text[]) AS given(referenced, referrer)
ON CONFLICT DO NOTHING

-- name: evaluations
SELECT ledger.fact_id, ledger.seq, firings.rule, ledger.version, ledger.what, ledger.at,
  ledger.payload, firings.at, ledger.firing
FROM unnest(:values::text[]) AS wanted(value)
CROSS JOIN LATERAL (
  SELECT seq, firing, what, version, at, fact_id, payload
  FROM slumberd_ledger AS ledger
  WHERE fact_id = wanted.value
    AND what IN (1, 2, 3, 6)
  OFFSET 0
) AS ledger
INNER JOIN slumberd_firings AS firings ON firings.n = ledger.firing
ORDER BY ledger.seq

-- name: all_evaluations
SELECT ledger.fact_id, ledger.seq, firings.rule, ledger.version, ledger.what, ledger.at,
  ledger.payload, firings.at, ledger.firing
FROM slumberd_ledger AS ledger
INNER JOIN slumberd_firings AS firings
  ON firings.n = ledger.firing
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

-- name: last_of_rule
SELECT ledger.fact_id, ledger.what, ledger.version
FROM unnest(:ids::text[]) AS wanted(value)
CROSS JOIN LATERAL (
  SELECT seq, firing, what, version, fact_id
  FROM slumberd_ledger AS ledger
  WHERE fact_id = wanted.value
    AND what IN (1, 2, 3, 4, 8)
  OFFSET 0
) AS ledger
CROSS JOIN LATERAL (
  SELECT rule
  FROM slumberd_firings AS firings
  WHERE n = ledger.firing
  OFFSET 0
) AS firings
WHERE firings.rule = :rule
ORDER BY ledger.seq

-- name: firing
SELECT rule, at, generation
FROM slumberd_firings
WHERE n = ?

-- name: firings_of_run
SELECT firings.n, firings.rule
FROM slumberd_firings AS firings
INNER JOIN slumberd_ledger AS own
  ON own.seq = firings.n
WHERE firings.last_seq > firings.n
  AND firings.generation >= 0
  AND position(convert_to(:run::text, 'UTF8') IN own.payload) > 0
  AND substring(convert_from(own.payload, 'UTF8') FROM '"run":"([^"\\]*)"') = :run::text
ORDER BY firings.n

-- name: firings_since
SELECT firings.n, firings.rule
FROM unnest(:rules::text[]) AS wanted(value)
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
  FROM unnest(:rules::text[]) AS wanted(value)
  INNER JOIN slumberd_firings AS firings ON firings.rule = wanted.value
  WHERE firings.generation >= 0
)

-- name: undone_by
SELECT firings.n,
  substring(convert_from(own.payload, 'UTF8') FROM '"undoes":"([^"\\]*)"')
FROM slumberd_firings AS firings
INNER JOIN slumberd_ledger AS own
  ON own.seq = firings.n
WHERE firings.rule = :undo
  AND firings.generation >= 0
ORDER BY firings.n DESC

-- name: rules_of_firings
SELECT firings.n, firings.rule
FROM unnest(:numbers::bigint[]) AS wanted(value)
INNER JOIN slumberd_firings AS firings ON firings.n = wanted.value

-- name: drop_quarantine_of_firing
DELETE FROM slumberd_quarantine
WHERE seq > (SELECT n FROM slumberd_firings WHERE n = :firing)
  AND seq <= (SELECT last_seq FROM slumberd_firings WHERE n = :firing)

-- name: referrers
SELECT refs.referenced, refs.referrer
FROM unnest(:values::text[]) AS wanted(value)
CROSS JOIN LATERAL (
  SELECT referenced, referrer
  FROM slumberd_references
  WHERE digest = digest(wanted.value)
  OFFSET 0
) AS refs

-- name: parts
SELECT DISTINCT wanted.value, ledger.fact_id
FROM unnest(:values::text[]) AS wanted(value)
CROSS JOIN LATERAL (
  SELECT fact_id
  FROM slumberd_ledger AS ledger
  WHERE fact_id > wanted.value || '#'
    AND fact_id < wanted.value || '$'
  OFFSET 0
) AS ledger

-- name: states_of_keys
SELECT keys.key, keys.slot, keys.key_id, keys.winner_at, keys.winner_rank, keys.winner_id,
  keys.winner_part, keys.winner_fact, keys.winner_object, keys.retractions, keys.replaced
FROM unnest(:keys::text[]) AS wanted(value)
CROSS JOIN LATERAL (
  SELECT key, slot, key_id, winner_at, winner_rank, winner_id, winner_part, winner_fact,
    winner_object, retractions, replaced
  FROM slumberd_keys AS keys
  WHERE digest = digest(wanted.value)
  OFFSET 0
) AS keys

-- name: whole_states
SELECT keys.key, keys.slot, keys.key_id, keys.winner_at, keys.winner_rank, keys.winner_id,
  keys.winner_part, keys.winner_fact, keys.winner_object, keys.retractions, keys.replaced
FROM unnest(:values::text[]) AS wanted(value)
CROSS JOIN LATERAL (
  SELECT key, slot, key_id, winner_at, winner_rank, winner_id, winner_part, winner_fact,
    winner_object, retractions, replaced
  FROM slumberd_keys AS keys
  WHERE digest = digest(wanted.value)
    AND slot = ''
  OFFSET 0
) AS keys

-- name: declared_states
SELECT keys.key, keys.slot, keys.key_id, keys.winner_at, keys.winner_rank, keys.winner_id,
  keys.winner_part, keys.winner_fact, keys.winner_object, keys.retractions, keys.replaced
FROM unnest(:values::text[]) AS wanted(value)
CROSS JOIN LATERAL (
  SELECT key, slot, key_id, winner_at, winner_rank, winner_id, winner_part, winner_fact,
    winner_object, retractions, replaced
  FROM slumberd_keys AS keys
  WHERE digest = digest(wanted.value)
    AND slot > '@'
    AND slot < 'A'
  OFFSET 0
) AS keys

-- name: states_of_slots
SELECT keys.key, keys.slot, keys.key_id, keys.winner_at, keys.winner_rank, keys.winner_id,
  keys.winner_part, keys.winner_fact, keys.winner_object, keys.retractions, keys.replaced
FROM unnest(:values_1::text[], :values_2::text[]) AS wanted(key, slot)
CROSS JOIN LATERAL (
  SELECT key, slot, key_id, winner_at, winner_rank, winner_id, winner_part, winner_fact,
    winner_object, retractions, replaced
  FROM slumberd_keys AS keys
  WHERE digest = digest(wanted.key)
    AND slot = wanted.slot
  OFFSET 0
) AS keys

-- name: put_state
-- many: each parameter is an array
INSERT INTO slumberd_keys
  (key, slot, key_id, winner_at, winner_rank, winner_id, winner_part, winner_fact,
   winner_object, retractions, replaced)
SELECT given.*
FROM unnest(
  ?::text[], ?::text[], ?::bigint[], ?::bigint[], ?::bigint[], ?::text[], ?::bigint[], ?::text[],
  ?::text[], ?::bytea[], ?::bytea[]
) AS given
ON CONFLICT (digest, slot) DO UPDATE SET
  winner_at = excluded.winner_at,
  winner_rank = excluded.winner_rank,
  winner_id = excluded.winner_id,
  winner_part = excluded.winner_part,
  winner_fact = excluded.winner_fact,
  winner_object = excluded.winner_object,
  retractions = excluded.retractions,
  replaced = excluded.replaced

-- name: drop_states
-- many: each parameter is an array
DELETE FROM slumberd_keys
WHERE slot != ''
  AND digest = ANY (ARRAY(SELECT digest(key) FROM unnest(?::text[]) AS given(key)))

-- name: facts_of_keys
SELECT DISTINCT keys.key, ledger.fact_id
FROM unnest(:values::text[]) AS wanted(value)
CROSS JOIN LATERAL (
  SELECT key, key_id
  FROM slumberd_keys AS keys
  WHERE digest = digest(wanted.value)
    AND slot = ''
  OFFSET 0
) AS keys
CROSS JOIN LATERAL (
  SELECT fact_id
  FROM slumberd_ledger AS ledger
  WHERE key_id = keys.key_id
    AND fact_id IS NOT NULL
  OFFSET 0
) AS ledger

-- name: keys
SELECT key
FROM slumberd_keys
WHERE slot = ''

-- name: evaluations_between
SELECT ledger.fact_id, ledger.seq, firings.rule, ledger.version, ledger.what, ledger.at,
  ledger.payload, firings.at, ledger.firing,
  EXISTS (
    SELECT 1
    FROM slumberd_ledger AS other
    WHERE other.fact_id = ledger.fact_id
      AND other.seq != ledger.seq
  )
FROM slumberd_keys AS keys
INNER JOIN slumberd_ledger AS ledger
  ON ledger.key_id = keys.key_id
INNER JOIN slumberd_firings AS firings ON firings.n = ledger.firing
WHERE left(keys.key, 256) >= left(:low, 256)
  AND left(keys.key, 256) <= left(:high, 256)
  AND keys.key >= :low
  AND keys.key < :high
  AND keys.slot = ''
  AND ledger.what = 1
  AND ledger.fact_id IS NOT NULL
  AND ledger.seq <= :upto

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

-- name: put_quarantine
-- many: each parameter is an array
INSERT INTO slumberd_quarantine
  (rule, channel, eid, version, owner, reason, detail, seq)
SELECT given.*
FROM unnest(
  ?::text[], ?::text[], ?::text[], ?::bigint[], ?::text[], ?::text[], ?::text[], ?::bigint[]
) AS given
ON CONFLICT (rule, channel, eid) DO UPDATE SET
  version = excluded.version,
  owner = excluded.owner,
  reason = excluded.reason,
  detail = excluded.detail,
  seq = excluded.seq

-- name: drop_quarantine
-- many: each parameter is an array
DELETE FROM slumberd_quarantine AS held
USING unnest(?::text[], ?::text[], ?::text[]) AS given(rule, channel, eid)
WHERE held.rule = given.rule
  AND held.channel = given.channel
  AND held.eid = given.eid

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
  AND eid = ANY (:ids::text[])

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
  AND eid = ANY (:ids::text[])
ORDER BY channel, eid
LIMIT :limit

-- name: last_firings
WITH RECURSIVE rules(rule) AS (
  SELECT min(rule)
  FROM slumberd_firings AS firings
  UNION ALL
  SELECT (
    SELECT min(firings.rule)
    FROM slumberd_firings AS firings
    WHERE firings.rule > rules.rule
  )
  FROM rules
  WHERE rule IS NOT NULL
)
SELECT firings.rule, firings.n, firings.at
FROM rules
INNER JOIN slumberd_firings AS firings
  ON firings.n = (
    SELECT max(n)
    FROM slumberd_firings AS firings
    WHERE firings.rule = rules.rule
      AND firings.generation >= 0
  )

-- part: record_columns
  ledger.seq, ledger.delta, ledger.firing, ledger.what, ledger.kind, ledger.reason,
  ledger.version, ledger.key_id, ledger.at, ledger.fact_id, ledger.replaces, ledger.payload,
  firings.rule, firings.rule_hash, firings.cause,
  least(firings.at, CASE WHEN firings.generation < 0 THEN firings.upto_seq END, (
    SELECT min(clock.at)
    FROM slumberd_firings AS clock
    WHERE clock.rule = '@clock'
      AND clock.n > firings.n
  )) AS recorded_at,
  CASE WHEN ledger.what IN (4, 5, 6) THEN (
    SELECT sibling.payload
    FROM slumberd_ledger AS sibling
    WHERE sibling.fact_id = ledger.fact_id
      AND (sibling.what = 1 OR (ledger.what = 4 AND sibling.what IN (2, 3, 8)))
      AND sibling.payload IS NOT NULL
    LIMIT 1
  ) END,
  substring(convert_from(own.payload, 'UTF8') FROM '"run":"([^"\\]*)"')

-- part: rows_with_firings
FROM slumberd_ledger AS ledger
INNER JOIN slumberd_firings AS firings
  ON firings.n = ledger.firing
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

-- part: rows_of_facts
FROM unnest(:ids::text[]) AS wanted(value)
CROSS JOIN LATERAL (
  SELECT seq, delta, firing, what, kind, reason, version, key_id, at, fact_id, replaces, payload
  FROM slumberd_ledger AS ledger
  WHERE fact_id = wanted.value
  OFFSET 0
) AS ledger
INNER JOIN slumberd_firings AS firings ON firings.n = ledger.firing
INNER JOIN slumberd_ledger AS own ON own.seq = firings.n

-- name: detailed_records
SELECT own.payload,
  -- include: record_columns
-- include: rows_of_facts
ORDER BY ledger.seq

-- name: removals
SELECT own.payload,
  -- include: record_columns
-- include: rows_of_facts
WHERE ledger.replaces IS NOT NULL
  AND as_jsonb(convert_to(ledger.replaces, 'UTF8')) @> to_jsonb(:fact_id::text)
ORDER BY ledger.seq

-- name: quarantined_records
SELECT held.channel, own.payload,
  -- include: record_columns
FROM unnest(:pairs_1::text[], :pairs_2::text[]) AS wanted(rule, channel)
INNER JOIN slumberd_quarantine AS held
  ON held.rule = wanted.rule
  AND held.channel = wanted.channel
  AND held.eid = :eid
INNER JOIN slumberd_ledger AS ledger ON ledger.seq = held.seq
INNER JOIN slumberd_firings AS firings ON firings.n = ledger.firing
INNER JOIN slumberd_ledger AS own ON own.seq = firings.n

-- name: fact_ids_of_keys
SELECT DISTINCT ledger.fact_id
FROM unnest(:key_ids::bigint[]) AS wanted(value)
CROSS JOIN LATERAL (
  SELECT fact_id
  FROM slumberd_ledger AS ledger
  WHERE key_id = wanted.value
    AND fact_id IS NOT NULL
  OFFSET 0
) AS ledger

-- name: facts_by_id
SELECT fact_id, "user", agent, payload, lineage, confidence, pinned_at, metadata
FROM facts
WHERE fact_id = ANY (:ids::text[])

-- name: last_counts
SELECT counts
FROM slumberd_firings
WHERE rule = ?
  AND counts != '{}'::bytea
ORDER BY n DESC
LIMIT 1

-- name: latest_batches
SELECT n, last_seq, upto_seq, counts
FROM slumberd_firings
WHERE rule = :rule
  AND counts != '{}'::bytea
ORDER BY n DESC
LIMIT :limit

-- name: readings
SELECT count(*), count(*) FILTER (WHERE learned),
  count(*) FILTER (WHERE said_nothing AND NOT learned),
  count(*) FILTER (WHERE quarantined AND NOT learned AND NOT said_nothing)
FROM (
  SELECT bool_or(ledger.kind IN (1, 2, 3)) AS learned,
    bool_or(ledger.reason = 'nothing_said') AS said_nothing,
    bool_or(ledger.kind = 5) AS quarantined
  FROM unnest(:batches_1::bigint[], :batches_2::bigint[]) AS batch(first, last)
  INNER JOIN slumberd_ledger AS ledger
    ON ledger.seq > batch.first
    AND ledger.seq <= batch.last
  GROUP BY ledger.version
) AS versions

-- name: learned_versions
SELECT DISTINCT ledger.version
FROM unnest(:batches_1::bigint[], :batches_2::bigint[]) AS batch(first, last)
INNER JOIN slumberd_ledger AS ledger
  ON ledger.seq > batch.first
  AND ledger.seq <= batch.last
WHERE ledger.kind IN (1, 2, 3)

-- name: counts_by_content
SELECT DISTINCT ON (rule_hash) counts
FROM slumberd_firings
WHERE rule = ?
  AND counts != '{}'::bytea
ORDER BY rule_hash

-- name: promoted_by
SELECT DISTINCT ledger.fact_id
FROM unnest(:ids::text[]) AS wanted(value)
CROSS JOIN LATERAL (
  SELECT fact_id, firing
  FROM slumberd_ledger AS ledger
  WHERE fact_id = wanted.value
    AND what = 1
  OFFSET 0
) AS ledger
CROSS JOIN LATERAL (
  SELECT rule
  FROM slumberd_firings AS firings
  WHERE n = ledger.firing
  OFFSET 0
) AS firings
WHERE firings.rule = :rule

-- name: rows_to_export
-- texts: bytes
SELECT seq, delta, firing, what, kind, reason, version, key_id, at, fact_id, replaces, payload,
  salt, commitment, chain
FROM slumberd_ledger
ORDER BY seq

-- name: hash_links
-- texts: bytes
SELECT seq, delta, firing, version, what, kind, reason, commitment, chain
FROM slumberd_ledger
ORDER BY seq

-- name: all_firings
-- texts: bytes
SELECT n, rule, rule_hash, cause, at, last_seq, generation, upto_seq, counts
FROM slumberd_firings
ORDER BY n

-- name: all_channels
-- texts: bytes
SELECT seq, multi_valued
FROM slumberd_channels

-- name: firing_rows_of_rule
SELECT ledger.seq, ledger.payload
FROM slumberd_firings AS firings
INNER JOIN slumberd_ledger AS ledger
  ON ledger.seq = firings.n
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
  WHERE (name = 'logged' OR name LIKE 'asserted:%')
  UNION ALL
  SELECT max(seq)
  FROM slumberd_quarantine
  UNION ALL
  SELECT max(key_id)
  FROM slumberd_keys
) AS mentioned

-- name: claims_with_references
SELECT fact_id, payload
FROM slumberd_ledger
WHERE what = 1
  AND position('"names":'::bytea IN payload) > 0

-- name: all_references
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

-- name: object_counts
SELECT keys.key, count(DISTINCT as_jsonb(ledger.payload) #>> '{payload,object}')
FROM slumberd_ledger AS ledger
INNER JOIN slumberd_keys AS keys
  ON keys.key_id = ledger.key_id
WHERE ledger.what = 1
  AND ledger.payload IS NOT NULL
  AND keys.slot = ''
  AND (as_jsonb(ledger.payload) ->> 'asserts')::boolean
GROUP BY keys.key

-- part: recorded_at
  least(firings.at, CASE WHEN firings.generation < 0 THEN firings.upto_seq END, (
    SELECT min(clock.at)
    FROM slumberd_firings AS clock
    WHERE clock.rule = '@clock'
      AND clock.n > firings.n
  ))

-- part: firing_columns
  firings.n, firings.rule, firings.cause,
  least(firings.at, CASE WHEN firings.generation < 0 THEN firings.upto_seq END, (
    SELECT min(clock.at)
    FROM slumberd_firings AS clock
    WHERE clock.rule = '@clock'
      AND clock.n > firings.n
  )) AS recorded_at, firings.last_seq, firings.counts, own.payload

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
INNER JOIN slumberd_ledger AS own
  ON own.seq = firings.n
WHERE firings.n < :before
  AND firings.generation >= 0
  AND
  -- include: recorded_at
  <= :upto
  AND position(convert_to(:run::text, 'UTF8') IN own.payload) > 0
  AND substring(convert_from(own.payload, 'UTF8') FROM '"run":"([^"\\]*)"') = :run::text
ORDER BY firings.n DESC

-- name: undone_after
SELECT firings.n,
  substring(convert_from(own.payload, 'UTF8') FROM '"undoes":"([^"\\]*)"')
FROM slumberd_firings AS firings
INNER JOIN slumberd_ledger AS own
  ON own.seq = firings.n
WHERE firings.rule = :undo
  AND firings.generation >= 0
  AND firings.n > :after
ORDER BY firings.n DESC

-- name: kinds_in_firings
SELECT wanted.value, ledger.what, ledger.kind, count(*)
FROM unnest(:numbers::bigint[]) AS wanted(value)
CROSS JOIN LATERAL (
  SELECT last_seq
  FROM slumberd_firings AS firings
  WHERE n = wanted.value
  OFFSET 0
) AS firings
CROSS JOIN LATERAL (
  SELECT what, kind
  FROM slumberd_ledger AS ledger
  WHERE seq > wanted.value
    AND seq <= firings.last_seq
  OFFSET 0
) AS ledger
GROUP BY wanted.value, ledger.what, ledger.kind

-- name: records_of_firing
SELECT
  -- include: record_columns
-- include: rows_with_firings
WHERE ledger.seq > greatest(:after::bigint, :firing::bigint)
  AND ledger.seq <= (SELECT last_seq FROM slumberd_firings WHERE n = :firing)
ORDER BY ledger.seq
LIMIT :limit

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
INNER JOIN slumberd_firings AS firings
  ON firings.n = ledger.firing
WHERE ledger.seq > :after
  AND ledger.seq <= :upto
ORDER BY ledger.seq

-- name: first_key_between
SELECT min(key_id)
FROM slumberd_keys
WHERE left(key, 256) >= left(:low, 256)
  AND left(key, 256) <= left(:high, 256)
  AND key >= :low
  AND key < :high

-- name: last_moved_by
SELECT last_seq
FROM slumberd_firings
WHERE n >= :first
  AND n < :arrival
  AND generation < 0
  AND upto_seq <= :at
ORDER BY n DESC
LIMIT 1
