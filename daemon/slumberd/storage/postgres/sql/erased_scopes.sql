-- name: exists
SELECT 1
FROM slumberd_erasure_key

-- name: has_key
SELECT 1
FROM slumberd_erasure_key

-- name: create_erasure_key
-- The table is part of the schema.
SELECT 1

-- name: create_erased_scopes
-- The table is part of the schema.
SELECT 1

-- name: episodes_that_may_name
SELECT rid, id, scope_key, content, timestamp, metadata
FROM episodes
WHERE (
    position(:escaped IN scope_key) > 0
    OR position(:plain IN content) > 0
    OR position('\x5c'::bytea IN content) > 0
  )

-- name: episodes_at
SELECT rid, id, scope_key, content, timestamp, metadata
FROM episodes
WHERE rid = ANY (:rowids::bigint[])

-- name: episodes_of
SELECT rid, id, scope_key, content, timestamp, metadata
FROM episodes
WHERE id = ANY (:eids::text[])

-- name: drop_episodes
DELETE FROM episodes
WHERE rid = ANY (:rowids::bigint[])
