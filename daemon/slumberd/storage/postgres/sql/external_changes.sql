-- name: any_change
-- No other program writes the table of facts; its rights forbid it.
SELECT false

-- name: drop_unreadable
DELETE FROM slumberd_quarantine
WHERE rule = :rule
  AND channel = :channel
  AND eid = :eid

-- name: unreadable_ids
SELECT eid
FROM slumberd_quarantine
WHERE rule = :rule
  AND reason = :reason

-- name: all_changed_ids
SELECT NULL::text
WHERE false
