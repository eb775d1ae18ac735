-- name: last_deletion
SELECT number
FROM slumberd.episode_deletions
WHERE shard = :shard
ORDER BY number DESC
LIMIT 1

-- name: deleted_after
SELECT number, rid
FROM slumberd.episode_deletions
WHERE shard = :shard
  AND number > :number
ORDER BY number

-- name: written_after
SELECT rid
FROM slumberd.episode_log
WHERE shard = :shard
  AND seq > :seq
  AND rid IS NOT NULL
ORDER BY seq
LIMIT :limit

-- name: rows_of
SELECT rid, id
FROM slumberd.episodes
WHERE shard = :shard
  AND id = ANY (:ids::text[])
