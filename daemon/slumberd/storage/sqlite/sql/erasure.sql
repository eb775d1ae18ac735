-- name: rows_of_keys
SELECT ledger.seq, ledger.fact_id, ledger.at, ledger.payload, keys.key
FROM slumberd_keys AS keys
CROSS JOIN slumberd_ledger AS ledger ON ledger.key_id = keys.key_id
WHERE keys.key >= :low
  AND keys.key < :high
  AND keys.slot = ''
  AND ledger.what = 1

-- name: numbers_of_keys
SELECT key_id, key
FROM slumberd_keys
WHERE key >= :low
  AND key < :high
  AND slot = ''

-- name: rows_of_facts
SELECT ledger.seq, ledger.fact_id, ledger.key_id, ledger.payload
FROM json_each(:ids) AS wanted
CROSS JOIN slumberd_ledger AS ledger ON ledger.fact_id = wanted.value

-- name: manual_claims_that_refer
SELECT refs.referenced, refs.referrer, claims.payload
FROM json_each(:ids) AS wanted
CROSS JOIN slumberd_references AS refs ON refs.referenced = wanted.value
CROSS JOIN slumberd_ledger AS claims ON claims.fact_id = refs.referrer
WHERE refs.referrer GLOB '@/*'
  AND claims.what = 1

-- name: rows_to_erase
-- texts: bytes
SELECT seq, key_id, at, fact_id, replaces, payload, salt, commitment
FROM slumberd_ledger
WHERE seq IN (SELECT value FROM json_each(:rows))

-- name: erase_rows
UPDATE slumberd_ledger
SET key_id = NULL, at = NULL, fact_id = NULL, replaces = NULL, salt = NULL, payload = NULL
WHERE seq IN (SELECT value FROM json_each(:rows))

-- name: facts_of_scope
SELECT fact_id, payload
FROM facts
WHERE user = :user
  AND (:agent IS NULL OR agent = :agent)
  AND (:whole OR fact_id IN (SELECT value FROM json_each(:ids)))

-- name: count_facts_of_scope
SELECT count(*)
FROM facts
WHERE user = :user
  AND (:agent IS NULL OR agent = :agent)
  AND (:whole OR fact_id IN (SELECT value FROM json_each(:ids)))

-- name: drop_facts_of_scope
DELETE FROM facts
WHERE user = :user
  AND (:agent IS NULL OR agent = :agent)
  AND (:whole OR fact_id IN (SELECT value FROM json_each(:ids)))

-- name: drop_references
DELETE FROM slumberd_references
WHERE referrer IN (SELECT value FROM json_each(:ids))
  AND NOT EXISTS (
    SELECT 1
    FROM slumberd_ledger AS claims
    CROSS JOIN json_each(CAST(claims.payload AS TEXT), '$.names') AS named
    WHERE claims.fact_id = slumberd_references.referrer
      AND claims.what = 1
      AND named.value = slumberd_references.referenced
  )

-- name: drop_keys
DELETE FROM slumberd_keys
WHERE key IN (SELECT value FROM json_each(:keys))
  AND NOT EXISTS (
    SELECT 1
    FROM slumberd_ledger AS ledger
    WHERE ledger.key_id = slumberd_keys.key_id
      AND ledger.fact_id IS NOT NULL
  )

-- name: drop_quarantine_of_rows
DELETE FROM slumberd_quarantine
WHERE seq IN (SELECT value FROM json_each(:rows))

-- name: blank_firings
UPDATE slumberd_firings
SET upto_eid = ''
WHERE upto_eid IN (SELECT value FROM json_each(:eids))

-- name: blank_watermarks
UPDATE slumberd_watermark
SET eid = ''
WHERE eid IN (SELECT value FROM json_each(:eids))

-- name: blank_held_batches
UPDATE slumberd_held_batches
SET upto_eid = ''
WHERE upto_eid IN (SELECT value FROM json_each(:eids))
