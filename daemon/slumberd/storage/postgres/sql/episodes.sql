-- name: by_id
SELECT id, scope_key, content, timestamp, metadata
FROM slumberd.episodes
WHERE shard = :shard
  AND id = ?

-- name: any_of_ids
SELECT 1
FROM slumberd.episodes
WHERE shard = :shard
  AND id = ANY (:ids::text[])
LIMIT 1

-- name: insert
-- many: each parameter is an array
WITH given AS (
  SELECT slumberd.shard_of(scope_key) AS shard, id, scope_key, content, timestamp, metadata
  FROM unnest(?::text[], ?::text[], ?::bytea[], ?::text[], ?::bytea[])
    AS given(id, scope_key, content, timestamp, metadata)
), claimed AS (
  INSERT INTO slumberd.episode_ids (id, shard)
  SELECT id, shard FROM given
)
INSERT INTO slumberd.episodes (shard, id, scope_key, content, timestamp, metadata)
SELECT shard, id, scope_key, content, timestamp, metadata
FROM given

-- name: page
SELECT rid, id, scope_key, content, timestamp, metadata
FROM slumberd.episodes
WHERE shard = :shard
  AND rid > :after
ORDER BY rid
LIMIT :limit

-- name: rowids
SELECT rid
FROM slumberd.episodes
WHERE shard = :shard
  AND rid > ?
ORDER BY rid
LIMIT ?

-- name: put
SELECT slumberd.put(
  :ids::text[], :scope_keys::text[], :contents::bytea[], :timestamps::text[], :metadatas::bytea[]
)
