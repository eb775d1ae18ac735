-- name: by_id
SELECT id, scope_key, content, timestamp, metadata
FROM episodes
WHERE id = ?

-- name: any_of_ids
SELECT 1
FROM episodes
WHERE id
  -- include: in_ids
LIMIT 1
