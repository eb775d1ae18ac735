-- name: newest
SELECT seq, eid
FROM slumberd_episode_log
ORDER BY seq DESC
LIMIT 1

-- name: episode_at
SELECT eid
FROM slumberd_episode_log
WHERE seq = :seq

-- name: pending
SELECT COUNT(*)
FROM (
  SELECT 1
  FROM slumberd_episode_log
  WHERE seq > :after
  LIMIT :at_most
) AS found
