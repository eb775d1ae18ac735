-- name: exists
SELECT 1
FROM sqlite_master
WHERE name = 'slumberd_forgotten'

-- name: create_keys
CREATE TABLE IF NOT EXISTS slumberd_forgetting (
  id INTEGER PRIMARY KEY CHECK (id = 1),
  key BLOB NOT NULL
) STRICT

-- name: create_moments
CREATE TABLE IF NOT EXISTS slumberd_forgotten (
  digest BLOB PRIMARY KEY,
  moment INTEGER NOT NULL
) STRICT, WITHOUT ROWID

-- name: add_key
INSERT INTO slumberd_forgetting (id, key)
VALUES (1, ?)
ON CONFLICT DO NOTHING

-- name: key
SELECT key
FROM slumberd_forgetting

-- name: moments
SELECT digest, moment
FROM slumberd_forgotten

-- name: moment
SELECT moment
FROM slumberd_forgotten
WHERE digest = ?

-- name: add_moment
INSERT INTO slumberd_forgotten (digest, moment)
VALUES (?, ?)
ON CONFLICT (digest) DO UPDATE SET
  moment = max(moment, excluded.moment)

-- name: episodes
SELECT rowid, id, scope_key, content, timestamp, metadata
FROM episodes

-- name: episodes_of
SELECT rowid, id, scope_key, content, timestamp, metadata
FROM episodes
WHERE id IN (SELECT value FROM json_each(:eids))

-- name: drop_episodes
DELETE FROM episodes
WHERE rowid IN (SELECT value FROM json_each(:rowids))

-- name: blank_log
UPDATE slumberd_episode_log
SET eid = '', rid = NULL
WHERE eid IN (SELECT value FROM json_each(:eids))
  AND eid NOT IN (SELECT id FROM episodes)

-- name: renumber_log
UPDATE slumberd_episode_log
SET rid = (SELECT episodes.rowid FROM episodes WHERE episodes.id = slumberd_episode_log.eid)
WHERE eid IN (SELECT id FROM episodes)
  AND rid IS NOT NULL
  AND rid IS NOT (SELECT episodes.rowid FROM episodes WHERE episodes.id = slumberd_episode_log.eid)
