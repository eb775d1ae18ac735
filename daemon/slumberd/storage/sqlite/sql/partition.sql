-- name: keys_of_shared
SELECT ledger.fact_id, ledger.key_id
FROM (
  SELECT again.fact_id
  FROM (
    SELECT fact_id
    FROM main.slumberd_ledger
    WHERE fact_id IS NOT NULL
    GROUP BY fact_id
    HAVING count(*) > 1
  ) AS again
  CROSS JOIN main.slumberd_ledger AS other ON other.fact_id = again.fact_id
  GROUP BY again.fact_id
  HAVING count(other.key_id) < count(*)
    OR min(other.key_id) < max(other.key_id)
) AS shared
CROSS JOIN main.slumberd_ledger AS ledger ON ledger.fact_id = shared.fact_id

-- name: claims_with_references
SELECT key_id, payload
FROM main.slumberd_ledger NOT INDEXED
WHERE what = 1
  AND key_id IS NOT NULL
  AND instr(payload, CAST('"names":' AS BLOB)) > 0

-- name: keys_of_parts
SELECT wanted.value, ledger.fact_id, ledger.key_id
FROM json_each(:values) AS wanted
CROSS JOIN main.slumberd_ledger AS ledger
  ON ledger.fact_id > wanted.value || '#'
  AND ledger.fact_id < wanted.value || '$'
WHERE ledger.key_id IS NOT NULL

-- name: rows_of_keys
SELECT ledger.seq, ledger.delta, ledger.firing, ledger.what, ledger.kind, ledger.reason,
  ledger.version, ledger.key_id, ledger.at, ledger.fact_id, ledger.replaces, ledger.payload
FROM json_each(:values) AS wanted
CROSS JOIN slumberd_ledger AS ledger ON ledger.key_id = wanted.value

-- name: facts_without_key
SELECT fact_id
FROM main.slumberd_ledger NOT INDEXED
WHERE key_id IS NULL
  AND fact_id IS NOT NULL
