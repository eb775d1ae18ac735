-- part: is_in_scope
  "user" = :user
  AND (:agent IS NULL OR agent = :agent)
  AND (:whole OR fact_id IN (SELECT value FROM json_each(:ids)))

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

-- name: manual_claims_that_refer
SELECT refs.referenced, refs.referrer, claims.payload
FROM json_each(:ids) AS wanted
CROSS JOIN slumberd_references AS refs ON refs.referenced = wanted.value
CROSS JOIN slumberd_ledger AS claims ON claims.fact_id = refs.referrer
WHERE refs.referrer GLOB '@/*'
  AND claims.what = 1

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
