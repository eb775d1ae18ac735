-- name: insert
-- many: each parameter is an array
INSERT INTO episodes (id, scope_key, content, timestamp, metadata)
SELECT given.*
FROM unnest(?::text[], ?::text[], ?::bytea[], ?::text[], ?::bytea[]) AS given

-- name: page
SELECT rid, id, scope_key, content, timestamp, metadata
FROM episodes
WHERE rid > :after
ORDER BY rid
LIMIT :limit

-- name: rowids
SELECT rid
FROM episodes
WHERE rid > ?
ORDER BY rid
LIMIT ?

-- name: put
SELECT put(
  :ids::text[], :scope_keys::text[], :contents::bytea[], :timestamps::text[], :metadatas::bytea[]
)
