-- name: any
SELECT EXISTS (
  SELECT 1
  FROM slumberd.inbox
  WHERE shard = :shard
)

-- name: version
SELECT seq + (
  SELECT coalesce(sum(upto), 0)::bigint
  FROM slumberd.calls
  WHERE calls.shard = :shard
)
FROM slumberd.log_ends
WHERE shard = :shard

-- name: lock
SELECT seq
FROM slumberd.log_ends
WHERE shard = :shard
FOR UPDATE

-- name: number
SELECT slumberd.number_inbox(:shard::smallint, :most::integer)
