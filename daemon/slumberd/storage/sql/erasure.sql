-- name: rows_without_key
SELECT seq, fact_id, at, payload
FROM slumberd_ledger
WHERE what IN (2, 3, 8)
  AND payload IS NOT NULL

-- name: erased
SELECT seq
FROM slumberd_ledger
WHERE salt IS NULL
ORDER BY seq

-- name: count_facts
SELECT count(*)
FROM facts
