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
    FROM sqlite_master
    WHERE name = 'slumberd_erased_scopes'
  ),
  (
    SELECT json_group_array(json_array(generation, after))
    FROM (
      SELECT generation, after
      FROM slumberd_generations
      ORDER BY generation DESC
    )
  )
FROM (
  SELECT 1
)
LEFT JOIN (
  SELECT seq, chain
  FROM slumberd_ledger
  ORDER BY seq DESC
  LIMIT 1
) AS last

-- name: add_reference
INSERT INTO slumberd_references (referenced, referrer)
VALUES (?, ?)
ON CONFLICT DO NOTHING

-- name: evaluations
SELECT ledger.fact_id, ledger.seq, firings.rule, ledger.version, ledger.what, ledger.at,
  ledger.payload, firings.at, ledger.firing
FROM json_each(:values) AS wanted
CROSS JOIN slumberd_ledger AS ledger ON ledger.fact_id = wanted.value
CROSS JOIN slumberd_firings AS firings ON firings.n = ledger.firing
WHERE ledger.what IN (1, 2, 3, 6)
ORDER BY ledger.seq

-- name: last_of_rule
SELECT ledger.fact_id, ledger.what, ledger.version
FROM json_each(:ids) AS wanted
CROSS JOIN slumberd_ledger AS ledger ON ledger.fact_id = wanted.value
CROSS JOIN slumberd_firings AS firings ON firings.n = ledger.firing
WHERE firings.rule = :rule
  AND ledger.what IN (1, 2, 3, 4, 8)
ORDER BY ledger.seq

-- name: referrers
SELECT refs.referenced, refs.referrer
FROM json_each(:values) AS wanted
CROSS JOIN slumberd_references AS refs ON refs.referenced = wanted.value

-- name: parts
SELECT DISTINCT wanted.value, ledger.fact_id
FROM json_each(:values) AS wanted
CROSS JOIN slumberd_ledger AS ledger
  ON ledger.fact_id > wanted.value || '#'
  AND ledger.fact_id < wanted.value || '$'

-- name: states_of_keys
-- texts: escaped
SELECT keys.key, keys.slot, keys.key_id, keys.winner_at, keys.winner_rank, keys.winner_id,
  keys.winner_part, keys.winner_fact, keys.winner_object, keys.retractions, keys.replaced
FROM json_each(:keys) AS wanted
CROSS JOIN slumberd_keys AS keys ON keys.key = wanted.value

-- name: whole_states
SELECT keys.key, keys.slot, keys.key_id, keys.winner_at, keys.winner_rank, keys.winner_id,
  keys.winner_part, keys.winner_fact, keys.winner_object, keys.retractions, keys.replaced
FROM json_each(:values) AS wanted
CROSS JOIN slumberd_keys AS keys ON keys.key = wanted.value AND keys.slot = ''

-- name: declared_states
SELECT keys.key, keys.slot, keys.key_id, keys.winner_at, keys.winner_rank, keys.winner_id,
  keys.winner_part, keys.winner_fact, keys.winner_object, keys.retractions, keys.replaced
FROM json_each(:values) AS wanted
CROSS JOIN slumberd_keys AS keys
  ON keys.key = wanted.value
  AND keys.slot > '@'
  AND keys.slot < 'A'

-- name: states_of_slots
SELECT keys.key, keys.slot, keys.key_id, keys.winner_at, keys.winner_rank, keys.winner_id,
  keys.winner_part, keys.winner_fact, keys.winner_object, keys.retractions, keys.replaced
FROM json_each(:values) AS wanted
CROSS JOIN slumberd_keys AS keys
  ON keys.key = json_extract(wanted.value, '$[0]')
  AND keys.slot = json_extract(wanted.value, '$[1]')

-- name: put_state
INSERT INTO slumberd_keys
  (key, slot, key_id, winner_at, winner_rank, winner_id, winner_part, winner_fact,
   winner_object, retractions, replaced)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (key, slot) DO UPDATE SET
  winner_at = excluded.winner_at,
  winner_rank = excluded.winner_rank,
  winner_id = excluded.winner_id,
  winner_part = excluded.winner_part,
  winner_fact = excluded.winner_fact,
  winner_object = excluded.winner_object,
  retractions = excluded.retractions,
  replaced = excluded.replaced

-- name: drop_states
DELETE FROM slumberd_keys
WHERE key = ?
  AND slot != ''

-- name: facts_of_keys
SELECT DISTINCT keys.key, ledger.fact_id
FROM json_each(:values) AS wanted
CROSS JOIN slumberd_keys AS keys ON keys.key = wanted.value AND keys.slot = ''
CROSS JOIN slumberd_ledger AS ledger ON ledger.key_id = keys.key_id
WHERE ledger.fact_id IS NOT NULL

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
CROSS JOIN slumberd_ledger AS ledger ON ledger.key_id = keys.key_id
CROSS JOIN slumberd_firings AS firings ON firings.n = ledger.firing
WHERE keys.key >= :low
  AND keys.key < :high
  AND keys.slot = ''
  AND ledger.what = 1
  AND ledger.fact_id IS NOT NULL
  AND ledger.seq <= :upto

-- name: put_quarantine
INSERT INTO slumberd_quarantine (rule, channel, eid, version, owner, reason, detail, seq)
VALUES (?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (rule, channel, eid) DO UPDATE SET
  version = excluded.version,
  owner = excluded.owner,
  reason = excluded.reason,
  detail = excluded.detail,
  seq = excluded.seq

-- name: drop_quarantine
DELETE FROM slumberd_quarantine
WHERE rule = ?
  AND channel = ?
  AND eid = ?

-- part: rows_of_facts
FROM json_each(:ids) AS wanted
CROSS JOIN slumberd_ledger AS ledger ON ledger.fact_id = wanted.value
CROSS JOIN slumberd_firings AS firings ON firings.n = ledger.firing
CROSS JOIN slumberd_ledger AS own ON own.seq = firings.n

-- name: removals
SELECT own.payload,
  -- include: record_columns
-- include: rows_of_facts
WHERE EXISTS (
    SELECT 1
    FROM json_each(ledger.replaces) AS replaced
    WHERE replaced.value = :fact_id
  )
ORDER BY ledger.seq

-- name: quarantined_records
SELECT held.channel, own.payload,
  -- include: record_columns
FROM json_each(:pairs) AS wanted
CROSS JOIN slumberd_quarantine AS held
  ON held.rule = json_extract(wanted.value, '$[0]')
  AND held.channel = json_extract(wanted.value, '$[1]')
  AND held.eid = :eid
CROSS JOIN slumberd_ledger AS ledger ON ledger.seq = held.seq
CROSS JOIN slumberd_firings AS firings ON firings.n = ledger.firing
CROSS JOIN slumberd_ledger AS own ON own.seq = firings.n

-- name: fact_ids_of_keys
SELECT DISTINCT ledger.fact_id
FROM json_each(:key_ids) AS wanted
CROSS JOIN slumberd_ledger AS ledger ON ledger.key_id = wanted.value
WHERE ledger.fact_id IS NOT NULL

-- name: readings
SELECT count(*), ifnull(sum(learned), 0),
  ifnull(sum(said_nothing > learned), 0),
  ifnull(sum(quarantined > max(learned, said_nothing)), 0)
FROM (
  SELECT max(ledger.kind IN (1, 2, 3)) AS learned,
    max(ledger.reason = 'nothing_said') AS said_nothing, max(ledger.kind = 5) AS quarantined
  FROM json_each(:batches) AS batch
  CROSS JOIN slumberd_ledger AS ledger
    ON ledger.seq > json_extract(batch.value, '$[0]')
    AND ledger.seq <= json_extract(batch.value, '$[1]')
  GROUP BY ledger.version
)

-- name: learned_versions
SELECT DISTINCT ledger.version
FROM json_each(:batches) AS batch
CROSS JOIN slumberd_ledger AS ledger
  ON ledger.seq > json_extract(batch.value, '$[0]')
  AND ledger.seq <= json_extract(batch.value, '$[1]')
WHERE ledger.kind IN (1, 2, 3)

-- name: counts_by_content
SELECT counts
FROM slumberd_firings
WHERE rule = ?
  AND counts != CAST('{}' AS BLOB)
GROUP BY rule_hash

-- name: promoted_by
SELECT DISTINCT ledger.fact_id
FROM json_each(:ids) AS wanted
CROSS JOIN slumberd_ledger AS ledger ON ledger.fact_id = wanted.value
CROSS JOIN slumberd_firings AS firings ON firings.n = ledger.firing
WHERE ledger.what = 1
  AND firings.rule = :rule

-- name: claims_with_references
-- texts: escaped
SELECT fact_id, payload
FROM slumberd_ledger
WHERE what = 1
  AND instr(payload, CAST('"names":' AS BLOB)) > 0

-- name: object_counts
SELECT keys.key, count(DISTINCT json_extract(CAST(ledger.payload AS TEXT), '$.payload.object'))
FROM slumberd_ledger AS ledger
INNER JOIN slumberd_keys AS keys ON keys.key_id = ledger.key_id
WHERE ledger.what = 1
  AND ledger.payload IS NOT NULL
  AND keys.slot = ''
  AND json_extract(CAST(ledger.payload AS TEXT), '$.asserts')
GROUP BY keys.key

-- name: kinds_in_firings
SELECT firings.n, ledger.what, ledger.kind, count(*)
FROM json_each(:numbers) AS wanted
CROSS JOIN slumberd_firings AS firings ON firings.n = wanted.value
CROSS JOIN slumberd_ledger AS ledger ON ledger.seq > firings.n AND ledger.seq <= firings.last_seq
GROUP BY firings.n, ledger.what, ledger.kind

-- name: records_of_firing
SELECT
  -- include: record_columns
-- include: rows_with_firings
WHERE ledger.seq > max(:after, :firing)
  AND ledger.seq <= (SELECT last_seq FROM slumberd_firings WHERE n = :firing)
ORDER BY ledger.seq
LIMIT :limit

-- name: first_key_between
SELECT min(key_id)
FROM slumberd_keys
WHERE key >= :low
  AND key < :high
