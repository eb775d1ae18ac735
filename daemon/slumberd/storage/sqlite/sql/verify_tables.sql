-- name: approvals
-- texts: escaped
SELECT payload
FROM slumberd_ledger
WHERE what = 0
  AND instr(payload, CAST('"approves":' AS BLOB)) > 0

-- name: is_read_later
-- texts: escaped
SELECT 1
FROM slumberd_ledger AS later
CROSS JOIN slumberd_firings AS firings ON firings.n = later.firing
WHERE (
    later.fact_id = :fact_id
    OR later.fact_id > :fact_id || '#' AND later.fact_id < :fact_id || '$'
  )
  AND later.firing > (SELECT firing FROM slumberd_ledger WHERE seq = :seq)
  AND later.version > 0
  AND later.what NOT IN (3, 4)
  AND firings.rule = :rule
LIMIT 1
