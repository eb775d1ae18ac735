-- A join of many values with a large table has the form
--   FROM unnest(:values) AS wanted(value) CROSS JOIN LATERAL (SELECT ... OFFSET 0) AS found
-- `OFFSET 0` keeps the planner from reading the table first and comparing each row with each
-- value. It does so in a new database, which has no statistics yet.

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

-- name: claims_with_references
SELECT fact_id, payload
FROM slumberd_ledger
WHERE what = 1
  AND position('"names":'::bytea IN payload) > 0

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

-- name: first_key_between
SELECT min(key_id)
FROM slumberd_keys
WHERE left(key, 256) >= left(:low, 256)
  AND left(key, 256) <= left(:high, 256)
  AND key >= :low
  AND key < :high
