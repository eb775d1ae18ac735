-- name: keys_of_facts
SELECT ledger.fact_id, ledger.key_id
-- include: from_values
INNER JOIN slumberd_ledger AS ledger ON ledger.fact_id = wanted.value
WHERE ledger.key_id IS NOT NULL

-- name: firings
SELECT firings.n, firings.rule, firings.at
-- include: from_numbers
INNER JOIN slumberd_firings AS firings ON firings.n = wanted.value

-- name: rows_by_key
SELECT ledger.seq, ledger.delta, ledger.firing, ledger.what, ledger.kind, ledger.reason,
  ledger.version, ledger.key_id, ledger.at, ledger.fact_id, ledger.replaces, ledger.payload
FROM slumberd_ledger AS ledger
WHERE ledger.key_id IS NOT NULL
ORDER BY ledger.key_id, ledger.seq

-- name: rows_of_facts
SELECT ledger.seq, ledger.delta, ledger.firing, ledger.what, ledger.kind, ledger.reason,
  ledger.version, ledger.key_id, ledger.at, ledger.fact_id, ledger.replaces, ledger.payload
-- include: from_values
INNER JOIN slumberd_ledger AS ledger ON ledger.fact_id = wanted.value

-- name: rows_without_fact
SELECT ledger.seq, ledger.delta, ledger.firing, ledger.what, ledger.kind, ledger.reason,
  ledger.version, ledger.key_id, ledger.at, ledger.fact_id, ledger.replaces, ledger.payload
FROM slumberd_ledger AS ledger
WHERE ledger.key_id IS NULL
  AND ledger.fact_id IS NULL
  AND ledger.salt IS NOT NULL
  AND ledger.what != 0
ORDER BY ledger.seq

-- name: all_rows
SELECT ledger.seq, ledger.delta, ledger.firing, ledger.what, ledger.kind, ledger.reason,
  ledger.version, ledger.key_id, ledger.at, ledger.fact_id, ledger.replaces, ledger.payload
FROM slumberd_ledger AS ledger
WHERE ledger.salt IS NOT NULL
  AND ledger.what != 0
ORDER BY ledger.seq
