-- name: approvals
SELECT payload
FROM slumberd_ledger
WHERE what = 0
  AND position('"approves":'::bytea IN payload) > 0

-- name: is_read_later
SELECT 1
FROM slumberd_ledger AS later
INNER JOIN slumberd_firings AS firings
  ON firings.n = later.firing
WHERE (
    later.fact_id = :fact_id::text
    OR later.fact_id > :fact_id::text || '#' AND later.fact_id < :fact_id::text || '$'
  )
  AND later.firing > (SELECT firing FROM slumberd_ledger WHERE seq = :seq)
  AND later.version > 0
  AND later.what NOT IN (3, 4)
  AND firings.rule = :rule
LIMIT 1
