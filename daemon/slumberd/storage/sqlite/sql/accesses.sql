-- name: create_table
CREATE TABLE slumberd_accesses (
  eid TEXT PRIMARY KEY,
  scope_key TEXT NOT NULL,
  count INTEGER NOT NULL,
  last INTEGER,
  held INTEGER NOT NULL
) WITHOUT ROWID

-- name: read
INSERT INTO slumberd_accesses (eid, scope_key, count, last, held)
SELECT episodes.id, episodes.scope_key,
  json_extract(noted.value, '$[1]'), json_extract(noted.value, '$[2]'), 0
FROM json_each(:noted) AS noted
CROSS JOIN episodes ON episodes.id = json_extract(noted.value, '$[0]')
WHERE true
ON CONFLICT (eid) DO UPDATE SET
  scope_key = excluded.scope_key,
  count = excluded.count + CASE WHEN scope_key = excluded.scope_key THEN count ELSE 0 END,
  last = CASE WHEN scope_key = excluded.scope_key
    THEN max(coalesce(last, excluded.last), excluded.last)
    ELSE excluded.last END

-- name: log_again
INSERT INTO slumberd_episode_log (rid, eid)
SELECT NULL, accesses.eid
FROM json_each(:ids) AS wanted
CROSS JOIN slumberd_accesses AS accesses ON accesses.eid = wanted.value
CROSS JOIN episodes ON episodes.id = accesses.eid
WHERE accesses.held
