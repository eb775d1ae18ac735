-- name: any
SELECT EXISTS (
  SELECT 1
  FROM slumberd.inbox
  WHERE shard = :shard
)

-- name: end
SELECT seq
FROM slumberd.log_ends
WHERE shard = :shard

-- name: lock
SELECT seq
FROM slumberd.log_ends
WHERE shard = :shard
FOR UPDATE

-- name: number
SELECT slumberd.number_inbox(:shard::smallint, :most::integer)
