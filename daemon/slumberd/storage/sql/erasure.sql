-- name: rows_without_key
SELECT seq, fact_id, at, payload
FROM slumberd_ledger
WHERE what IN (2, 3, 8)
  AND payload IS NOT NULL

-- name: rows_of_facts
SELECT ledger.seq, ledger.fact_id, ledger.key_id, ledger.payload
-- include: from_ids
INNER JOIN slumberd_ledger AS ledger ON ledger.fact_id = wanted.value

-- name: rows_to_erase
-- texts: bytes
SELECT seq, key_id, at, fact_id, replaces, payload, salt, commitment
FROM slumberd_ledger
WHERE seq
  -- include: in_rows

-- name: erase_rows
UPDATE slumberd_ledger
SET key_id = NULL, at = NULL, fact_id = NULL, replaces = NULL, salt = NULL, payload = NULL
WHERE seq
  -- include: in_rows

-- name: erased
SELECT seq
FROM slumberd_ledger
WHERE salt IS NULL
ORDER BY seq

-- name: facts_of_scope
SELECT fact_id, payload
FROM facts
WHERE
  -- include: is_in_scope

-- name: count_facts_of_scope
SELECT count(*)
FROM facts
WHERE
  -- include: is_in_scope
  AND
  -- include: is_no_stage_fact

-- name: drop_facts_of_scope
DELETE FROM facts
WHERE
  -- include: is_in_scope

-- name: drop_quarantine_of_rows
DELETE FROM slumberd_quarantine
WHERE seq
  -- include: in_rows

-- name: blank_firings
UPDATE slumberd_firings
SET upto_eid = ''
WHERE upto_eid
  -- include: in_eids

-- name: blank_watermarks
UPDATE slumberd_watermark
SET eid = ''
WHERE eid
  -- include: in_eids

-- name: blank_held_batches
UPDATE slumberd_held_batches
SET upto_eid = ''
WHERE upto_eid
  -- include: in_eids

-- name: count_facts
SELECT count(*)
FROM facts
