-- name: lock
SELECT value
FROM slumberd.numbers
WHERE shard = :shard
  AND name = 'epoch'
FOR UPDATE

-- name: epoch
SELECT value
FROM slumberd.numbers
WHERE shard = :shard
  AND name = 'epoch'
