-- name: drop_unreadable
DELETE FROM slumberd_quarantine
WHERE rule = :rule
  AND channel = :channel
  AND eid = :eid

-- name: unreadable_ids
-- texts: escaped
SELECT eid
FROM slumberd_quarantine
WHERE rule = :rule
  AND reason = :reason
