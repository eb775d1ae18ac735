-- name: create_table
CREATE TABLE slumberd_episode_log (
  seq INTEGER PRIMARY KEY AUTOINCREMENT,
  rid,
  eid
)

-- name: create_log_index
CREATE INDEX IF NOT EXISTS slumberd_episode_log_rid ON slumberd_episode_log (rid)

-- name: create_insert_trigger
CREATE TRIGGER slumberd_episode_inserted
AFTER INSERT ON episodes
BEGIN
  INSERT INTO slumberd_episode_log (rid, eid)
  VALUES (NEW.rowid, NEW.id);
END

-- name: create_update_trigger
CREATE TRIGGER slumberd_episode_updated
AFTER UPDATE ON episodes
WHEN NEW.rowid IS NOT OLD.rowid
  OR NEW.id IS NOT OLD.id
  OR NEW.scope_key IS NOT OLD.scope_key
  OR NEW.content IS NOT OLD.content
  OR NEW.timestamp IS NOT OLD.timestamp
  OR NEW.metadata IS NOT OLD.metadata
BEGIN
  INSERT INTO slumberd_episode_log (rid, eid)
  VALUES (NEW.rowid, NEW.id);
END

-- name: drop_insert_trigger
DROP TRIGGER IF EXISTS slumberd_episode_inserted

-- name: drop_update_trigger
DROP TRIGGER IF EXISTS slumberd_episode_updated

-- name: drop_index
DROP INDEX IF EXISTS idx_episodes_scope_ts

-- name: drop_user_index
DROP INDEX IF EXISTS slumberd_episodes_user

-- name: drop_utc_index
DROP INDEX IF EXISTS slumberd_episodes_utc

-- name: drop_other_index
DROP INDEX IF EXISTS slumberd_episodes_other

-- name: drop_by_user_index
DROP INDEX IF EXISTS slumberd_episodes_by_user

-- name: drop_by_session_index
DROP INDEX IF EXISTS slumberd_episodes_by_session

-- name: objects
SELECT name, tbl_name, sql
FROM sqlite_master
WHERE name IN (
  'episodes',
  'idx_episodes_scope_ts',
  'slumberd_episodes_utc',
  'slumberd_episodes_other',
  'slumberd_episodes_by_user',
  'slumberd_episodes_by_session',
  'slumberd_accesses',
  'slumberd_episode_log',
  'slumberd_episode_deletions',
  'slumberd_extractions',
  'slumberd_model_summaries',
  'slumberd_model_usage',
  'slumberd_model_requests',
  'slumberd_episode_log_rid',
  'slumberd_extractions_eid',
  'slumberd_model_summaries_eid',
  'slumberd_model_requests_id',
  'slumberd_episode_inserted',
  'slumberd_episode_updated',
  'slumberd_episode_deleted',
  'slumberd_rewriting'
)

-- name: log_every_episode
INSERT INTO slumberd_episode_log (rid, eid)
SELECT rowid, id
FROM episodes
ORDER BY julianday(timestamp), timestamp, id

-- name: oldest_timestamp
SELECT CAST(episodes.timestamp AS TEXT)
FROM slumberd_episode_log AS log
CROSS JOIN episodes ON episodes.rowid = log.rid AND episodes.id IS log.eid
WHERE log.seq > :after
ORDER BY log.seq
LIMIT 1

-- name: window
-- texts: lenient
SELECT l.seq, l.eid, l.rid IS NULL,
  (
    SELECT max(later.seq)
    FROM slumberd_episode_log AS later INDEXED BY slumberd_episode_log_rid
    WHERE later.rid = +e.rowid
      AND later.eid IS e.id
  ),
  e.rowid, e.id, e.scope_key, e.content, e.timestamp, e.metadata
FROM slumberd_episode_log AS l
LEFT JOIN episodes AS e ON e.rowid = l.rid AND e.id IS l.eid
WHERE l.seq > :after
ORDER BY l.seq
LIMIT :limit

-- name: moved
-- texts: lenient
SELECT
  (
    SELECT max(later.seq)
    FROM slumberd_episode_log AS later INDEXED BY slumberd_episode_log_rid
    WHERE later.rid = +e.rowid
      AND later.eid IS e.id
  ),
  e.rowid, e.id, e.scope_key, e.content, e.timestamp, e.metadata
FROM episodes AS e
WHERE id IN (SELECT value FROM json_each(:ids))

-- name: create_rewriting
CREATE TABLE slumberd_rewriting (
  schema_version INTEGER
)

-- name: begin_rewriting
INSERT INTO slumberd_rewriting (schema_version)
VALUES (?)

-- name: rewriting_begun_at
SELECT schema_version
FROM slumberd_rewriting

-- name: drop_rewriting
DROP TABLE IF EXISTS slumberd_rewriting

-- name: is_renumbered
SELECT EXISTS (
  SELECT 1
  FROM (
    SELECT eid, rid, max(seq)
    FROM slumberd_episode_log
    WHERE rid IS NOT NULL
    GROUP BY eid
  ) AS newest
  INNER JOIN episodes ON episodes.id = newest.eid
  WHERE newest.rid IS NOT episodes.rowid
)

-- name: renumber_log
UPDATE slumberd_episode_log
SET rid = (SELECT episodes.rowid FROM episodes WHERE episodes.id = slumberd_episode_log.eid)
WHERE eid IN (SELECT id FROM episodes)
  AND rid IS NOT NULL
  AND rid IS NOT (SELECT episodes.rowid FROM episodes WHERE episodes.id = slumberd_episode_log.eid)
