-- name: create_batch
CREATE TEMP TABLE IF NOT EXISTS slumberd_batch (
  rid INTEGER PRIMARY KEY
)

-- name: clear_batch
DELETE FROM temp.slumberd_batch

-- name: fill_batch
INSERT OR IGNORE INTO temp.slumberd_batch (rid)
SELECT value
FROM json_each(?)

-- name: create_view_by_scope
-- A CASE ends in a jump, and at jumps SQLite looks at the deadline: each column has one.
-- is_owned says that the content names the owner: the key is Stargraph's placeholder, or holds a
-- part that Stargraph did not escape.
CREATE TEMP VIEW IF NOT EXISTS slumberd_filter_by_scope AS
SELECT
  rid,
  CASE WHEN rid IS NOT NULL THEN id END AS id,
  CASE WHEN rid IS NOT NULL THEN scope_key END AS scope_key,
  CASE WHEN is_owned THEN
    substr(json_extract(document, '$.user'), 1, 65536)
  ELSE
    replace(replace(substr(user_on, 1, instr(user_on, '/') - 1), '%2F', '/'), '%25', '%')
  END AS user,
  CASE WHEN is_owned THEN
    substr(json_extract(document, '$.session'), 1, 65536)
  ELSE
    replace(replace(substr(session_on, 1, instr(session_on, '/') - 1), '%2F', '/'), '%25', '%')
  END AS session,
  CASE WHEN is_owned THEN
    substr(json_extract(document, '$.agent'), 1, 65536)
  ELSE
    replace(replace(substr(agent_on, 1, instr(agent_on, '/') - 1), '%2F', '/'), '%25', '%')
  END AS agent,
  CASE WHEN rid IS NOT NULL THEN
    substr(json_extract(document, '$.content'), 1, 65536)
  END AS content,
  CASE WHEN rid IS NOT NULL THEN
    substr(json_extract(document, '$.source_node'), 1, 65536)
  END AS source_node,
  CASE WHEN rid IS NOT NULL THEN
    slumberd_speaker(document, meta)
  END AS speaker,
  CASE WHEN rid IS NOT NULL THEN
    slumberd_is_person(document, meta)
  END AS is_person,
  CASE WHEN substr(timestamp, -6) = '+00:00' THEN timestamp
    ELSE slumberd_with_offset(timestamp)
  END AS timestamp,
  CASE WHEN length(meta) <= 65536 THEN meta END AS metadata,
  CASE WHEN rid IS NOT NULL THEN
    substr(json_extract(meta, '$.intent'), 1, 65536)
  END AS intent,
  CASE WHEN rid IS NOT NULL THEN
    substr(json_extract(meta, '$.subject'), 1, 65536)
  END AS subject,
  CASE WHEN rid IS NOT NULL THEN
    substr(json_extract(meta, '$.predicate'), 1, 65536)
  END AS predicate,
  CASE json_type(meta, '$.object')
    WHEN 'integer' THEN json_extract(meta, '$.object')
    WHEN 'real' THEN json_extract(meta, '$.object')
    ELSE substr(json_extract(meta, '$.object'), 1, 65536)
  END AS object,
  CASE
    WHEN json_type(meta, '$.confidence') IS NULL OR json_type(meta, '$.confidence') = 'null'
    THEN 1.0
    WHEN json_type(meta, '$.confidence') IN ('integer', 'real')
      AND json_extract(meta, '$.confidence') BETWEEN 0 AND 1
    THEN CAST(json_extract(meta, '$.confidence') AS REAL)
  END AS confidence
FROM (
  SELECT *, substr(session_on, instr(session_on, '/') + 7) AS agent_on,
    CASE
      WHEN scope_key = '/user/anon/session/default/agent/default/'
        OR length(scope_key) - length(replace(scope_key, '/', '')) <> 7
      THEN 1
      WHEN instr(scope_key, '%')
      THEN scope_key = '/user/' || json_extract(document, '$.user')
        || '/session/' || json_extract(document, '$.session')
        || '/agent/' || json_extract(document, '$.agent') || '/'
    END AS is_owned
  FROM (
    SELECT *, substr(user_on, instr(user_on, '/') + 9) AS session_on
    FROM (
      SELECT
        b.rid,
        substr(CAST(e.id AS TEXT), 1, 65536) AS id,
        substr(CAST(e.scope_key AS TEXT), 1, 65536) AS scope_key,
        substr(CAST(e.scope_key AS TEXT), 7, 4096) AS user_on,
        substr(CAST(e.timestamp AS TEXT), 1, 65536) AS timestamp,
        CASE WHEN json_valid(CAST(e.content AS TEXT)) THEN CAST(e.content AS TEXT) END AS document,
        CASE WHEN json_valid(CAST(e.metadata AS TEXT)) THEN CAST(e.metadata AS TEXT) END AS meta
      FROM temp.slumberd_batch AS b
      CROSS JOIN main.episodes AS e ON e.rowid = b.rid
    )
  )
)

-- name: create_view_by_content
CREATE TEMP VIEW IF NOT EXISTS slumberd_filter_by_content AS
SELECT
  v.rid,
  v.id,
  v.scope_key,
  CASE WHEN v.rid IS NOT NULL THEN
    substr(json_extract(CAST(e.content AS TEXT), '$.user'), 1, 65536)
  END AS user,
  CASE WHEN v.rid IS NOT NULL THEN
    substr(json_extract(CAST(e.content AS TEXT), '$.session'), 1, 65536)
  END AS session,
  CASE WHEN v.rid IS NOT NULL THEN
    substr(json_extract(CAST(e.content AS TEXT), '$.agent'), 1, 65536)
  END AS agent,
  v.content,
  v.source_node,
  v.speaker,
  v.is_person,
  v.timestamp,
  v.metadata,
  v.intent,
  v.subject,
  v.predicate,
  v.object,
  v.confidence
FROM slumberd_filter_by_scope AS v
CROSS JOIN main.episodes AS e ON e.rowid = v.rid
WHERE json_valid(CAST(e.content AS TEXT))

-- name: select_by_scope
SELECT rid
FROM slumberd_filter_by_scope AS episodes
WHERE rid BETWEEN :first AND :last AND (

-- name: select_by_content
SELECT rid
FROM slumberd_filter_by_content AS episodes
WHERE rid BETWEEN :first AND :last AND (
