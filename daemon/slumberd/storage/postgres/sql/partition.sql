-- name: keys_of_shared
SELECT ledger.fact_id, ledger.key_id
FROM (
  SELECT again.fact_id
  FROM (
    SELECT fact_id
    FROM slumberd_ledger AS ledger
    WHERE fact_id IS NOT NULL
    GROUP BY fact_id
    HAVING count(*) > 1
  ) AS again
  INNER JOIN slumberd_ledger AS other ON other.fact_id = again.fact_id
  GROUP BY again.fact_id
  HAVING count(other.key_id) < count(*)
    OR min(other.key_id) < max(other.key_id)
) AS shared
INNER JOIN slumberd_ledger AS ledger ON ledger.fact_id = shared.fact_id

-- name: claims_with_references
SELECT key_id, payload
FROM slumberd_ledger
WHERE what = 1
  AND key_id IS NOT NULL
  AND position('"names":'::bytea IN payload) > 0

-- name: keys_of_parts
SELECT wanted.value, ledger.fact_id, ledger.key_id
FROM unnest(:values::text[]) AS wanted(value)
CROSS JOIN LATERAL (
  SELECT fact_id, key_id
  FROM slumberd_ledger AS ledger
  WHERE fact_id > wanted.value || '#'
    AND fact_id < wanted.value || '$'
    AND key_id IS NOT NULL
  OFFSET 0
) AS ledger

-- name: rows_of_keys
SELECT ledger.seq, ledger.delta, ledger.firing, ledger.what, ledger.kind, ledger.reason,
  ledger.version, ledger.key_id, ledger.at, ledger.fact_id, ledger.replaces, ledger.payload
FROM unnest(:values::bigint[]) AS wanted(value)
INNER JOIN slumberd_ledger AS ledger ON ledger.key_id = wanted.value

-- name: facts_without_key
SELECT fact_id
FROM slumberd_ledger
WHERE key_id IS NULL
  AND fact_id IS NOT NULL
