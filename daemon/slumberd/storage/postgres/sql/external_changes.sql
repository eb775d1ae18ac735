-- name: any_change
-- No other program writes the table of facts; its rights forbid it.
SELECT false

-- name: all_changed_ids
SELECT NULL::text
WHERE false
