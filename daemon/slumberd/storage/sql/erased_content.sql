-- name: ids
-- texts: lenient
SELECT id, scope_key
FROM episodes

-- name: scope_keys
-- texts: lenient
SELECT DISTINCT scope_key
FROM episodes

-- name: timestamps
-- texts: lenient
SELECT timestamp
FROM episodes
WHERE scope_key = ?
