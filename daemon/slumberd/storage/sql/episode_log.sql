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
  FROM slumberd_episode_log AS log
  WHERE log.seq > :after
    AND
    -- include: is_unread
  LIMIT :at_most
) AS found

-- name: is_inside
SELECT EXISTS (SELECT 1 FROM slumberd_episode_log WHERE seq < :seq)
  AND EXISTS (SELECT 1 FROM slumberd_episode_log WHERE seq > :seq)

-- name: prunable
-- A row of a deleted episode: another episode had its number by :upto, or no known deletion has it.
SELECT log.seq,
  log.eid IS NOT NULL
  AND NOT EXISTS (SELECT 1 FROM episodes WHERE episodes.id = log.eid)
  AND coalesce(
    (
      SELECT min(later.seq)
      FROM slumberd_episode_log AS later
      WHERE later.rid = log.rid
        AND later.seq > log.seq
    ) <= :upto,
    log.rid IS NULL
    OR log.rid NOT IN (SELECT rid FROM slumberd_episode_deletions WHERE rid IS NOT NULL)
  )
FROM (
  SELECT seq, rid, eid
  FROM slumberd_episode_log
  WHERE seq > :after
    AND seq <= :upto
    AND seq > (SELECT min(seq) FROM slumberd_episode_log)
  ORDER BY seq
  LIMIT :limit
) AS log
ORDER BY log.seq

-- name: prune
DELETE FROM slumberd_episode_log
WHERE seq
  -- include: in_rows
