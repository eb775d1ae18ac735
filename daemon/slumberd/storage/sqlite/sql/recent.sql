-- part: columns_of_next_agent
SELECT id, scope_key, content, timestamp, metadata,
  CAST(substr(
    substr(scope_key, 15 + instr(substr(scope_key, 7), '/')),
    7 + instr(substr(scope_key, 15 + instr(substr(scope_key, 7), '/')), '/')
  ) AS BLOB)

-- part: of_agent
WHERE substr(scope_key, 1, 6 + instr(substr(scope_key, 7), '/')) = :user
  AND substr(
    substr(scope_key, 15 + instr(substr(scope_key, 7), '/')),
    7 + instr(substr(scope_key, 15 + instr(substr(scope_key, 7), '/')), '/')
  ) = +CAST(:agent AS TEXT)

-- part: of_next_agent
WHERE substr(scope_key, 1, 6 + instr(substr(scope_key, 7), '/')) = :user
  AND substr(
    substr(scope_key, 15 + instr(substr(scope_key, 7), '/')),
    7 + instr(substr(scope_key, 15 + instr(substr(scope_key, 7), '/')), '/')
  ) > +CAST(:last AS TEXT)

-- part: of_next_key
WHERE scope_key > CAST(:last AS TEXT)
  AND scope_key < :end

-- part: in_a_scope
  AND scope_key <> '/user/anon/session/default/agent/default/'
  AND length(scope_key) - length(replace(scope_key, '/', '')) = 7
  AND typeof(timestamp) = 'text'

-- part: is_utc
  AND (
    timestamp GLOB '????-??-??T??:??:??+00:00'
    OR (timestamp GLOB '*T??:??:??.??????+00:00' AND timestamp NOT GLOB '*.000000+00:00')
  )

-- part: is_not_utc
  AND NOT (
    timestamp GLOB '????-??-??T??:??:??+00:00'
    OR (timestamp GLOB '*T??:??:??.??????+00:00' AND timestamp NOT GLOB '*.000000+00:00')
  )

-- part: first_agent
ORDER BY
  substr(
    substr(scope_key, 15 + instr(substr(scope_key, 7), '/')),
    7 + instr(substr(scope_key, 15 + instr(substr(scope_key, 7), '/')), '/')
  ),
  timestamp DESC
LIMIT 1

-- part: content_names_user
WHERE (
    scope_key = '/user/anon/session/default/agent/default/'
    OR length(scope_key) - length(replace(scope_key, '/', '')) <> 7
  )
  AND CASE
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
  END = :user

-- part: of_content
  AND (
    timestamp GLOB '????-??-??T??:??:??+00:00'
    OR (timestamp GLOB '*T??:??:??.??????+00:00' AND timestamp NOT GLOB '*.000000+00:00')
  ) = :utc
  AND timestamp >= :floor
  AND timestamp <= :upto
  AND typeof(timestamp) = 'text'
  AND instr(CAST(content AS TEXT), :agent) > 0
ORDER BY timestamp DESC

-- name: key_utc
-- texts: lenient
SELECT id, scope_key, content, timestamp, metadata
FROM episodes
WHERE scope_key = CAST(:key AS TEXT)
  AND typeof(timestamp) = 'text'
-- include: is_utc
ORDER BY timestamp DESC

-- name: key_upto
-- texts: lenient
SELECT id, scope_key, content, timestamp, metadata
FROM episodes
WHERE scope_key = CAST(:key AS TEXT)
  AND timestamp <= :upto
  AND typeof(timestamp) = 'text'
-- include: is_utc
ORDER BY timestamp DESC
LIMIT :limit

-- name: next_key_utc
-- texts: lenient
SELECT id, scope_key, content, timestamp, metadata, CAST(scope_key AS BLOB)
FROM episodes
-- include: of_next_key
-- include: in_a_scope
-- include: is_utc
ORDER BY scope_key, timestamp DESC
LIMIT 1

-- name: agent_utc
-- texts: lenient
SELECT id, scope_key, content, timestamp, metadata
FROM episodes INDEXED BY slumberd_episodes_utc
-- include: of_agent
-- include: in_a_scope
-- include: is_utc
ORDER BY timestamp DESC

-- name: next_agent_utc
-- texts: lenient
-- include: columns_of_next_agent
FROM episodes INDEXED BY slumberd_episodes_utc
-- include: of_next_agent
-- include: in_a_scope
-- include: is_utc
-- include: first_agent

-- name: key_other
-- texts: lenient
SELECT id, scope_key, content, timestamp, metadata
FROM episodes
WHERE scope_key = CAST(:key AS TEXT)
  AND timestamp >= :floor
  AND typeof(timestamp) = 'text'
-- include: is_not_utc
ORDER BY timestamp DESC

-- name: next_key_other
-- texts: lenient
SELECT id, scope_key, content, timestamp, metadata, CAST(scope_key AS BLOB)
FROM episodes
-- include: of_next_key
-- include: in_a_scope
-- include: is_not_utc
ORDER BY scope_key, timestamp DESC
LIMIT 1

-- name: agent_other
-- texts: lenient
SELECT id, scope_key, content, timestamp, metadata
FROM episodes INDEXED BY slumberd_episodes_other
-- include: of_agent
  AND timestamp >= :floor
-- include: in_a_scope
-- include: is_not_utc
ORDER BY timestamp DESC

-- name: next_agent_other
-- texts: lenient
-- include: columns_of_next_agent
FROM episodes INDEXED BY slumberd_episodes_other
-- include: of_next_agent
-- include: in_a_scope
-- include: is_not_utc
-- include: first_agent

-- name: any_other
SELECT EXISTS (
  SELECT 1
  FROM episodes INDEXED BY slumberd_episodes_other
  WHERE substr(scope_key, 1, 6 + instr(substr(scope_key, 7), '/')) = :user
    AND scope_key <> '/user/anon/session/default/agent/default/'
    AND length(scope_key) - length(replace(scope_key, '/', '')) = 7
    AND NOT (
      timestamp GLOB '????-??-??T??:??:??+00:00'
      OR (timestamp GLOB '*T??:??:??.??????+00:00' AND timestamp NOT GLOB '*.000000+00:00')
    )
)

-- name: owned_user
-- texts: lenient
SELECT id, scope_key, content, timestamp, metadata
FROM episodes INDEXED BY slumberd_episodes_by_user
-- include: content_names_user
-- include: of_content

-- name: owned_session
-- texts: lenient
SELECT id, scope_key, content, timestamp, metadata
FROM episodes INDEXED BY slumberd_episodes_by_session
WHERE (
    scope_key = '/user/anon/session/default/agent/default/'
    OR length(scope_key) - length(replace(scope_key, '/', '')) <> 7
  )
  AND CASE
    WHEN substr(substr(CAST(content AS TEXT), instr(CAST(content AS TEXT), ',"user":"')), 1, 9) = ',"user":"'
      AND instr(substr(CAST(content AS TEXT), instr(CAST(content AS TEXT), ',"user":"')), '","session":"') > 0
      AND instr(substr(CAST(content AS TEXT), instr(CAST(content AS TEXT), ',"user":"')), '\u') = 0
      AND length(substr(CAST(content AS TEXT), instr(CAST(content AS TEXT), ',"user":"')))
        - length(replace(substr(CAST(content AS TEXT), instr(CAST(content AS TEXT), ',"user":"')), '":', '')) = 4
    THEN substr(CAST(content AS TEXT), instr(CAST(content AS TEXT), ',"user":"'))
    ELSE ''
  END = :session
-- include: of_content

-- name: any_owned
SELECT EXISTS (
  SELECT 1
  FROM episodes INDEXED BY slumberd_episodes_by_user
-- include: content_names_user
)
