-- name: ids_of_other_rows
SELECT again.fact_id
FROM (
  SELECT fact_id
  FROM slumberd_ledger AS ledger
  WHERE fact_id IS NOT NULL
  GROUP BY fact_id
  HAVING count(*) > 1
) AS again
INNER JOIN slumberd_ledger AS ledger ON ledger.fact_id = again.fact_id
WHERE ledger.what IN (1, 2, 3, 6)
GROUP BY again.fact_id
HAVING max(ledger.what) > 1
  OR min(ledger.key_id) < max(ledger.key_id)

-- name: slots
SELECT fact_id, payload, subject, predicate, object, object_number
FROM facts
