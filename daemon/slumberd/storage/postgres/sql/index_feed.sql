-- name: rows_of
SELECT rid, id
FROM episodes
WHERE id = ANY (:ids::text[])

-- name: ids_of_rows
-- texts: lenient
SELECT DISTINCT eid
FROM slumberd_episode_log
WHERE rid = ANY (:rids::bigint[])
