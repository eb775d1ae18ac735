-- name: newest
SELECT seq, eid
FROM slumberd.episode_log
WHERE shard = :shard
ORDER BY seq DESC
LIMIT 1

-- name: episode_at
SELECT eid
FROM slumberd.episode_log
WHERE shard = :shard
  AND seq = :seq

-- name: pending
SELECT COUNT(*)
FROM (
  SELECT 1
  FROM slumberd.episode_log
  WHERE shard = :shard
    AND seq > :after
  LIMIT :at_most
) AS found

-- name: oldest_timestamp
SELECT episodes.timestamp
FROM slumberd.episode_log AS log
INNER JOIN slumberd.episodes
  ON log.shard = :shard
  AND episodes.shard = :shard
  AND episodes.rid = log.rid
  AND episodes.id = log.eid
WHERE log.seq > :after
ORDER BY log.seq
LIMIT 1

-- name: window
SELECT l.seq, l.eid, l.rid IS NULL, e.newest, e.rid, e.id, e.scope_key, e.content, e.timestamp,
  e.metadata
FROM (
  SELECT seq, eid, rid
  FROM slumberd.episode_log
  WHERE shard = :shard
    AND seq > :after
  ORDER BY seq
  LIMIT :limit
) AS l
LEFT JOIN LATERAL (
  SELECT rid, id, scope_key, content, timestamp, metadata,
    (
      SELECT max(later.seq)
      FROM slumberd.episode_log AS later
      WHERE later.shard = :shard
        AND later.rid = episodes.rid
        AND later.eid = episodes.id
    ) AS newest
  FROM slumberd.episodes
  WHERE shard = :shard
    AND rid = l.rid
    AND id = l.eid
  OFFSET 0
) AS e ON true
ORDER BY l.seq

-- name: moved
SELECT
  (
    SELECT max(later.seq)
    FROM slumberd.episode_log AS later
    WHERE later.shard = :shard
      AND later.rid = e.rid
      AND later.eid = e.id
  ),
  e.rid, e.id, e.scope_key, e.content, e.timestamp, e.metadata
FROM slumberd.episodes AS e
WHERE e.shard = :shard
  AND id = ANY (:ids::text[])
