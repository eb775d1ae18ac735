-- name: by_id
SELECT id, scope_key, content, timestamp, metadata
FROM episodes
WHERE id = ?
