-- name: rows_of
SELECT rid, id
FROM episodes
WHERE id = ANY (:ids::text[])
