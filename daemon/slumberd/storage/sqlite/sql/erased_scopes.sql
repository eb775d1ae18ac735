-- name: exists
SELECT 1
FROM sqlite_master
WHERE name = 'slumberd_erased_scopes'

-- name: has_key
SELECT 1
FROM sqlite_master
WHERE name = 'slumberd_erasure_key'

-- name: create_erasure_key
CREATE TABLE IF NOT EXISTS slumberd_erasure_key (
  id INTEGER PRIMARY KEY CHECK (id = 1),
  key BLOB NOT NULL
) STRICT

-- name: create_erased_scopes
CREATE TABLE IF NOT EXISTS slumberd_erased_scopes (
  digest BLOB PRIMARY KEY,
  moment INTEGER NOT NULL
) STRICT, WITHOUT ROWID

-- name: episodes_that_may_name
-- texts: lenient
SELECT rowid, id, scope_key, content, timestamp, metadata
FROM episodes
WHERE typeof(scope_key) <> 'text'
  OR typeof(content) <> 'blob'
  OR instr(scope_key, :escaped) > 0
  OR instr(content, :plain) > 0
  OR instr(content, x'5C') > 0

-- name: episodes_at
-- texts: lenient
SELECT rowid, id, scope_key, content, timestamp, metadata
FROM episodes
WHERE rowid IN (SELECT value FROM json_each(:rowids))

-- name: episodes_of
-- texts: lenient
SELECT rowid, id, scope_key, content, timestamp, metadata
FROM episodes
WHERE id IN (SELECT value FROM json_each(:eids))

-- name: drop_episodes
DELETE FROM episodes
WHERE rowid IN (SELECT value FROM json_each(:rowids))
