-- name: create_table
CREATE TABLE IF NOT EXISTS episodes (
  id TEXT PRIMARY KEY,
  scope_key TEXT NOT NULL,
  content BLOB NOT NULL,
  timestamp TEXT NOT NULL,
  metadata BLOB NOT NULL
)

-- name: probe
SELECT rowid, id, scope_key, content, timestamp, metadata
FROM episodes
LIMIT 0

-- name: create_index
CREATE INDEX IF NOT EXISTS idx_episodes_scope_ts
ON episodes(scope_key, timestamp DESC)

-- name: create_utc_index
CREATE INDEX IF NOT EXISTS slumberd_episodes_utc
ON episodes(
  substr(scope_key, 1, 6 + instr(substr(scope_key, 7), '/')),
  substr(
    substr(scope_key, 15 + instr(substr(scope_key, 7), '/')),
    7 + instr(substr(scope_key, 15 + instr(substr(scope_key, 7), '/')), '/')
  ),
  timestamp DESC
)
WHERE scope_key <> '/user/anon/session/default/agent/default/'
  AND length(scope_key) - length(replace(scope_key, '/', '')) = 7
  AND (
    timestamp GLOB '????-??-??T??:??:??+00:00'
    OR (timestamp GLOB '*T??:??:??.??????+00:00' AND timestamp NOT GLOB '*.000000+00:00')
  )

-- name: create_other_index
CREATE INDEX IF NOT EXISTS slumberd_episodes_other
ON episodes(
  substr(scope_key, 1, 6 + instr(substr(scope_key, 7), '/')),
  substr(
    substr(scope_key, 15 + instr(substr(scope_key, 7), '/')),
    7 + instr(substr(scope_key, 15 + instr(substr(scope_key, 7), '/')), '/')
  ),
  timestamp DESC
)
WHERE NOT (
    timestamp GLOB '????-??-??T??:??:??+00:00'
    OR (timestamp GLOB '*T??:??:??.??????+00:00' AND timestamp NOT GLOB '*.000000+00:00')
  )
  AND scope_key <> '/user/anon/session/default/agent/default/'
  AND length(scope_key) - length(replace(scope_key, '/', '')) = 7

-- name: create_by_user_index
CREATE INDEX IF NOT EXISTS slumberd_episodes_by_user
ON episodes(
  CASE
    WHEN substr(substr(CAST(content AS TEXT), instr(CAST(content AS TEXT), ',"user":"')), 1, 9) = ',"user":"'
      AND instr(substr(CAST(content AS TEXT), instr(CAST(content AS TEXT), ',"user":"')), '","session":"') > 0
      AND instr(substr(CAST(content AS TEXT), instr(CAST(content AS TEXT), ',"user":"')), '\u') = 0
      AND length(substr(CAST(content AS TEXT), instr(CAST(content AS TEXT), ',"user":"')))
        - length(replace(substr(CAST(content AS TEXT), instr(CAST(content AS TEXT), ',"user":"')), '":', '')) = 4
    THEN substr(
      substr(CAST(content AS TEXT), instr(CAST(content AS TEXT), ',"user":"')),
      1,
      instr(substr(CAST(content AS TEXT), instr(CAST(content AS TEXT), ',"user":"')), '","session":"')
    )
    ELSE ''
  END,
  (
    timestamp GLOB '????-??-??T??:??:??+00:00'
    OR (timestamp GLOB '*T??:??:??.??????+00:00' AND timestamp NOT GLOB '*.000000+00:00')
  ),
  timestamp DESC
)
WHERE scope_key = '/user/anon/session/default/agent/default/'
  OR length(scope_key) - length(replace(scope_key, '/', '')) <> 7

-- name: create_by_session_index
CREATE INDEX IF NOT EXISTS slumberd_episodes_by_session
ON episodes(
  CASE
    WHEN substr(substr(CAST(content AS TEXT), instr(CAST(content AS TEXT), ',"user":"')), 1, 9) = ',"user":"'
      AND instr(substr(CAST(content AS TEXT), instr(CAST(content AS TEXT), ',"user":"')), '","session":"') > 0
      AND instr(substr(CAST(content AS TEXT), instr(CAST(content AS TEXT), ',"user":"')), '\u') = 0
      AND length(substr(CAST(content AS TEXT), instr(CAST(content AS TEXT), ',"user":"')))
        - length(replace(substr(CAST(content AS TEXT), instr(CAST(content AS TEXT), ',"user":"')), '":', '')) = 4
    THEN substr(CAST(content AS TEXT), instr(CAST(content AS TEXT), ',"user":"'))
    ELSE ''
  END,
  (
    timestamp GLOB '????-??-??T??:??:??+00:00'
    OR (timestamp GLOB '*T??:??:??.??????+00:00' AND timestamp NOT GLOB '*.000000+00:00')
  ),
  timestamp DESC
)
WHERE scope_key = '/user/anon/session/default/agent/default/'
  OR length(scope_key) - length(replace(scope_key, '/', '')) <> 7

-- name: insert
INSERT INTO episodes (id, scope_key, content, timestamp, metadata)
VALUES (?, ?, ?, ?, ?)

-- name: update
UPDATE episodes
SET content = ?, timestamp = ?, metadata = ?
WHERE id = ?

-- name: page
-- texts: lenient
SELECT rowid, id, scope_key, content, timestamp, metadata
FROM episodes
WHERE rowid > :after
ORDER BY rowid
LIMIT :limit

-- name: rowids
SELECT rowid
FROM episodes
WHERE rowid > ?
ORDER BY rowid
LIMIT ?
