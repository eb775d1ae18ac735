-- name: rows_of_keys
SELECT ledger.seq, ledger.fact_id, ledger.at, ledger.payload, keys.key
FROM slumberd.keys AS keys
INNER JOIN slumberd.ledger AS ledger
  ON keys.shard = :shard
  AND ledger.shard = :shard
  AND ledger.key_id = keys.key_id
WHERE left(keys.key, 256) >= left(:low, 256)
  AND left(keys.key, 256) <= left(:high, 256)
  AND keys.key >= :low
  AND keys.key < :high
  AND keys.slot = ''
  AND ledger.what = 1

-- name: rows_without_key
SELECT seq, fact_id, at, payload
FROM slumberd.ledger
WHERE shard = :shard
  AND what IN (2, 3, 8)
  AND payload IS NOT NULL

-- name: numbers_of_keys
SELECT key_id, key
FROM slumberd.keys
WHERE shard = :shard
  AND left(key, 256) >= left(:low, 256)
  AND left(key, 256) <= left(:high, 256)
  AND key >= :low
  AND key < :high
  AND slot = ''

-- name: rows_of_facts
SELECT ledger.seq, ledger.fact_id, ledger.key_id, ledger.payload
FROM unnest(:ids::text[]) AS wanted(value)
INNER JOIN slumberd.ledger AS ledger ON ledger.shard = :shard AND ledger.fact_id = wanted.value

-- name: manual_claims_that_refer
SELECT refs.referenced, refs.referrer, claims.payload
FROM unnest(:ids::text[]) AS wanted(value)
CROSS JOIN LATERAL (
  SELECT referenced, referrer
  FROM slumberd.claim_references
  WHERE shard = :shard
    AND digest = slumberd.digest(wanted.value)
    AND referrer LIKE '@/%'
  OFFSET 0
) AS refs
INNER JOIN slumberd.ledger AS claims ON claims.shard = :shard AND claims.fact_id = refs.referrer
WHERE claims.what = 1

-- name: rows_to_erase
-- texts: bytes
SELECT seq, key_id, at, fact_id, replaces, payload, salt, commitment
FROM slumberd.ledger
WHERE shard = :shard
  AND seq = ANY (:rows::bigint[])

-- name: erase_rows
UPDATE slumberd.ledger
SET key_id = NULL, at = NULL, fact_id = NULL, replaces = NULL, salt = NULL, payload = NULL
WHERE shard = :shard
  AND seq = ANY (:rows::bigint[])

-- name: erased
SELECT seq
FROM slumberd.ledger
WHERE shard = :shard
  AND salt IS NULL
ORDER BY seq

-- name: facts_of_scope
SELECT fact_id, payload
FROM slumberd.facts
WHERE shard = :shard
  AND slumberd.short("user") = slumberd.short(:user)
  AND "user" = :user
  AND (:agent::text IS NULL OR agent = :agent::text)
  AND (:whole::boolean OR fact_id = ANY (:ids::text[]))

-- name: count_facts_of_scope
SELECT count(*)
FROM slumberd.facts
WHERE shard = :shard
  AND slumberd.short("user") = slumberd.short(:user)
  AND "user" = :user
  AND (:agent::text IS NULL OR agent = :agent::text)
  AND (:whole::boolean OR fact_id = ANY (:ids::text[]))

-- name: drop_facts_of_scope
DELETE FROM slumberd.facts
WHERE shard = :shard
  AND slumberd.short("user") = slumberd.short(:user)
  AND "user" = :user
  AND (:agent::text IS NULL OR agent = :agent::text)
  AND (:whole::boolean OR fact_id = ANY (:ids::text[]))

-- name: drop_references
DELETE FROM slumberd.claim_references
WHERE shard = :shard
  AND referrer = ANY (:ids::text[])
  AND NOT EXISTS (
    SELECT 1
    FROM slumberd.ledger AS claims
    WHERE claims.shard = :shard
      AND claims.fact_id = claim_references.referrer
      AND claims.what = 1
      AND slumberd.as_jsonb(claims.payload) -> 'names' @> to_jsonb(claim_references.referenced)
  )

-- name: drop_keys
DELETE FROM slumberd.keys
WHERE shard = :shard
  AND digest IN (SELECT slumberd.digest(unnest(:keys::text[])))
  AND NOT EXISTS (
    SELECT 1
    FROM slumberd.ledger AS ledger
    WHERE ledger.shard = :shard
      AND ledger.key_id = keys.key_id
      AND ledger.fact_id IS NOT NULL
  )

-- name: drop_quarantine_of_rows
DELETE FROM slumberd.quarantine
WHERE shard = :shard
  AND seq = ANY (:rows::bigint[])

-- name: blank_firings
UPDATE slumberd.firings
SET upto_eid = ''
WHERE shard = :shard
  AND upto_eid = ANY (:eids::text[])

-- name: blank_watermarks
UPDATE slumberd.watermark
SET eid = ''
WHERE shard = :shard
  AND eid = ANY (:eids::text[])

-- name: blank_held_batches
UPDATE slumberd.held_batches
SET upto_eid = ''
WHERE shard = :shard
  AND upto_eid = ANY (:eids::text[])

-- name: count_facts
SELECT count(*)
FROM slumberd.facts
WHERE shard = :shard
