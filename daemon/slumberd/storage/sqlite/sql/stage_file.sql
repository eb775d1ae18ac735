-- name: create_rules
CREATE TABLE IF NOT EXISTS stage_rules (
  number INTEGER PRIMARY KEY,
  rule TEXT NOT NULL UNIQUE,
  fingerprint TEXT,
  seq INTEGER,
  eid TEXT,
  deletion INTEGER,
  row INTEGER,
  chain BLOB,
  at INTEGER
) STRICT

-- name: create_owners
CREATE TABLE IF NOT EXISTS stage_owners (
  number INTEGER PRIMARY KEY,
  rule INTEGER NOT NULL,
  user TEXT NOT NULL,
  agent TEXT NOT NULL,
  UNIQUE (rule, user, agent)
) STRICT

-- name: create_owners_user
CREATE INDEX IF NOT EXISTS stage_owners_user ON stage_owners (user)

-- name: create_entries
CREATE TABLE IF NOT EXISTS stage_entries (
  owner INTEGER NOT NULL,
  eid TEXT NOT NULL,
  rule INTEGER NOT NULL,
  due INTEGER,
  kept TEXT NOT NULL,
  traces BLOB NOT NULL,
  archived_at INTEGER,
  assertion INTEGER,
  PRIMARY KEY (owner, eid)
) STRICT, WITHOUT ROWID

-- name: create_entries_eid
CREATE INDEX IF NOT EXISTS stage_entries_eid ON stage_entries (eid, rule)

-- name: create_entries_due
CREATE INDEX IF NOT EXISTS stage_entries_due ON stage_entries (rule, due) WHERE due IS NOT NULL

-- name: create_entries_archived
CREATE INDEX IF NOT EXISTS stage_entries_archived
ON stage_entries (rule, archived_at) WHERE archived_at IS NOT NULL

-- name: create_traces
CREATE TABLE IF NOT EXISTS stage_traces (
  owner INTEGER NOT NULL,
  trace INTEGER NOT NULL,
  eid TEXT NOT NULL,
  PRIMARY KEY (owner, trace, eid)
) STRICT, WITHOUT ROWID

-- name: create_texts
CREATE TABLE IF NOT EXISTS stage_texts (
  owner INTEGER NOT NULL,
  assertion INTEGER NOT NULL,
  eid TEXT NOT NULL,
  text TEXT NOT NULL,
  vector BLOB NOT NULL,
  PRIMARY KEY (owner, assertion, eid)
) STRICT, WITHOUT ROWID

-- name: create_erasures
CREATE TABLE IF NOT EXISTS stage_erasures (
  rule INTEGER NOT NULL,
  number INTEGER NOT NULL,
  chain BLOB NOT NULL,
  user TEXT,
  PRIMARY KEY (rule, number)
) STRICT, WITHOUT ROWID

-- name: rule
SELECT number, fingerprint, seq, eid, deletion, row, chain, at
FROM stage_rules
WHERE rule = ?

-- name: add_rule
INSERT INTO stage_rules (rule)
VALUES (?)

-- name: set_place
UPDATE stage_rules
SET fingerprint = ?, seq = ?, eid = ?, deletion = ?, row = ?, chain = ?, at = ?
WHERE number = ?

-- name: blank_places
UPDATE stage_rules
SET eid = ''
WHERE eid IN (SELECT value FROM json_each(?))

-- name: blank_erasures
UPDATE stage_erasures
SET user = NULL
WHERE user = ?

-- name: add_erasure
INSERT OR REPLACE INTO stage_erasures (rule, number, chain, user)
SELECT rules.number, ?, ?, ?
FROM stage_rules AS rules
WHERE rules.fingerprint IS NOT NULL

-- name: erasures
SELECT number, chain, user
FROM stage_erasures
WHERE rule = ?

-- name: clear_erasures
DELETE FROM stage_erasures
WHERE rule = ?

-- name: count_entries
SELECT count(*)
FROM stage_owners AS owners
INNER JOIN stage_entries AS entries ON entries.owner = owners.number
WHERE owners.user = ?

-- name: clear_traces
DELETE FROM stage_traces
WHERE owner IN (SELECT number FROM stage_owners WHERE rule = ?)

-- name: clear_texts
DELETE FROM stage_texts
WHERE owner IN (SELECT number FROM stage_owners WHERE rule = ?)

-- name: clear_entries
DELETE FROM stage_entries
WHERE owner IN (SELECT number FROM stage_owners WHERE rule = ?)

-- name: clear_owners
DELETE FROM stage_owners
WHERE rule = ?

-- name: owner
SELECT number
FROM stage_owners
WHERE rule = ?
  AND user = ?
  AND agent = ?

-- name: add_owner
INSERT INTO stage_owners (rule, user, agent)
VALUES (?, ?, ?)

-- name: owners_of
SELECT entries.eid, owners.user, owners.agent
FROM json_each(?) AS wanted
CROSS JOIN stage_entries AS entries ON entries.eid = wanted.value AND entries.rule = ?
INNER JOIN stage_owners AS owners ON owners.number = entries.owner

-- name: due
SELECT owners.user, owners.agent, entries.eid
FROM stage_entries AS entries
INNER JOIN stage_owners AS owners ON owners.number = entries.owner
WHERE entries.rule = ?
  AND entries.due <= ?

-- name: archived
SELECT eid
FROM stage_entries
WHERE rule = ?
  AND archived_at <= ?

-- name: eids
SELECT eid
FROM stage_entries
WHERE owner = ?

-- name: entries
SELECT
  entries.eid,
  entries.due,
  entries.kept,
  entries.traces,
  entries.archived_at,
  texts.assertion,
  texts.text,
  texts.vector
FROM json_each(?) AS wanted
CROSS JOIN stage_entries AS entries ON entries.owner = ? AND entries.eid = wanted.value
LEFT JOIN stage_texts AS texts
  ON texts.owner = entries.owner
  AND texts.assertion = entries.assertion
  AND texts.eid = entries.eid

-- name: traced
SELECT trace, eid
FROM json_each(?) AS wanted
CROSS JOIN stage_traces ON owner = ? AND trace = wanted.value

-- name: texts
SELECT eid, text, vector
FROM stage_texts
WHERE owner = ?
  AND assertion = ?

-- name: put_entry
INSERT INTO stage_entries (owner, eid, rule, due, kept, traces, archived_at, assertion)
VALUES (?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (owner, eid) DO UPDATE SET
  due = excluded.due,
  kept = excluded.kept,
  traces = excluded.traces,
  archived_at = excluded.archived_at,
  assertion = excluded.assertion

-- name: put_text
INSERT INTO stage_texts (owner, eid, assertion, text, vector)
VALUES (?, ?, ?, ?, ?)

-- name: put_trace
INSERT INTO stage_traces (owner, trace, eid)
VALUES (?, ?, ?)
ON CONFLICT DO NOTHING

-- name: drop_entry
DELETE FROM stage_entries
WHERE owner = ?
  AND eid = ?

-- name: drop_text
DELETE FROM stage_texts
WHERE owner = ?
  AND assertion = ?
  AND eid = ?

-- name: drop_trace
DELETE FROM stage_traces
WHERE owner = ?
  AND trace = ?
  AND eid = ?

-- name: erase_traces
DELETE FROM stage_traces
WHERE owner IN (SELECT number FROM stage_owners WHERE user = ?)

-- name: erase_texts
DELETE FROM stage_texts
WHERE owner IN (SELECT number FROM stage_owners WHERE user = ?)

-- name: erase_entries
DELETE FROM stage_entries
WHERE owner IN (SELECT number FROM stage_owners WHERE user = ?)

-- name: erase_owners
DELETE FROM stage_owners
WHERE user = ?

-- name: untraced
SELECT count(*)
FROM stage_traces AS traces
WHERE NOT EXISTS (
  SELECT 1
  FROM stage_entries AS entries
  WHERE entries.owner = traces.owner
    AND entries.eid = traces.eid
)

-- name: unlisted
SELECT count(*)
FROM stage_texts AS texts
WHERE NOT EXISTS (
  SELECT 1
  FROM stage_entries AS entries
  WHERE entries.owner = texts.owner
    AND entries.eid = texts.eid
    AND entries.assertion = texts.assertion
)
