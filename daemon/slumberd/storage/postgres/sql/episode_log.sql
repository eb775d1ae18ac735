-- name: oldest_timestamp
SELECT episodes.timestamp
FROM slumberd_episode_log AS log
INNER JOIN episodes
  ON episodes.rid = log.rid
  AND episodes.id = log.eid
WHERE log.seq > :after
ORDER BY log.seq
LIMIT 1

-- name: window
SELECT l.seq, l.eid, l.rid IS NULL, e.newest, e.rid, e.id, e.scope_key, e.content, e.timestamp,
  e.metadata
FROM (
  SELECT seq, eid, rid
  FROM slumberd_episode_log
  WHERE seq > :after
  ORDER BY seq
  LIMIT :limit
) AS l
LEFT JOIN LATERAL (
  SELECT rid, id, scope_key, content, timestamp, metadata,
    (
      SELECT max(later.seq)
      FROM slumberd_episode_log AS later
      WHERE later.rid = episodes.rid
        AND later.eid = episodes.id
    ) AS newest
  FROM episodes
  WHERE rid = l.rid
    AND id = l.eid
  OFFSET 0
) AS e ON true
ORDER BY l.seq

-- name: moved
SELECT
  (
    SELECT max(later.seq)
    FROM slumberd_episode_log AS later
    WHERE later.rid = e.rid
      AND later.eid = e.id
  ),
  e.rid, e.id, e.scope_key, e.content, e.timestamp, e.metadata
FROM episodes AS e
WHERE id = ANY (:ids::text[])
