-- name: any
SELECT EXISTS (
  SELECT 1
  FROM inbox
)

-- name: version
SELECT seq
FROM log_ends

-- name: lock
SELECT seq
FROM log_ends
FOR UPDATE

-- name: number
SELECT number_inbox(:most::integer)
