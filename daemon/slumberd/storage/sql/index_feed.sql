-- name: last_deletion
SELECT number
FROM slumberd_episode_deletions
ORDER BY number DESC
LIMIT 1

-- name: deleted_after
SELECT number, rid
FROM slumberd_episode_deletions
WHERE number > :number
ORDER BY number

-- name: written_after
SELECT rid
FROM slumberd_episode_log
WHERE seq > :seq
  AND rid IS NOT NULL
ORDER BY seq
LIMIT :limit

-- name: ids_written_after
-- texts: lenient
SELECT eid, max(seq)
FROM slumberd_episode_log
WHERE seq > :seq
GROUP BY eid
