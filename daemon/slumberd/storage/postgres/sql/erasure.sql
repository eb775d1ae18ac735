-- part: is_in_scope
  short("user") = short(:user)
  AND "user" = :user
  AND (:agent::text IS NULL OR agent = :agent::text)
  AND (:whole::boolean OR fact_id = ANY (:ids::text[]))

-- name: rows_of_keys
SELECT ledger.seq, ledger.fact_id, ledger.at, ledger.payload, keys.key
FROM slumberd_keys AS keys
INNER JOIN slumberd_ledger AS ledger
  ON ledger.key_id = keys.key_id
WHERE left(keys.key, 256) >= left(:low, 256)
  AND left(keys.key, 256) <= left(:high, 256)
  AND keys.key >= :low
  AND keys.key < :high
  AND keys.slot = ''
  AND ledger.what = 1

-- name: numbers_of_keys
SELECT key_id, key
FROM slumberd_keys
WHERE left(key, 256) >= left(:low, 256)
  AND left(key, 256) <= left(:high, 256)
  AND key >= :low
  AND key < :high
  AND slot = ''

-- name: manual_claims_that_refer
SELECT refs.referenced, refs.referrer, claims.payload
FROM unnest(:ids::text[]) AS wanted(value)
CROSS JOIN LATERAL (
  SELECT referenced, referrer
  FROM slumberd_references
  WHERE digest = digest(wanted.value)
    AND referrer LIKE '@/%'
  OFFSET 0
) AS refs
INNER JOIN slumberd_ledger AS claims ON claims.fact_id = refs.referrer
WHERE claims.what = 1

-- name: drop_references
DELETE FROM slumberd_references AS claim_references
WHERE referrer = ANY (:ids::text[])
  AND NOT EXISTS (
    SELECT 1
    FROM slumberd_ledger AS claims
    WHERE claims.fact_id = claim_references.referrer
      AND claims.what = 1
      AND as_jsonb(claims.payload) -> 'names' @> to_jsonb(claim_references.referenced)
  )

-- name: drop_keys
DELETE FROM slumberd_keys AS keys
WHERE digest IN (SELECT digest(unnest(:keys::text[])))
  AND NOT EXISTS (
    SELECT 1
    FROM slumberd_ledger AS ledger
    WHERE ledger.key_id = keys.key_id
      AND ledger.fact_id IS NOT NULL
  )
