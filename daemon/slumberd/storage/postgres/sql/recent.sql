-- Rows come from `put` alone: each has a scope key that names its owner, and a timestamp in UTC.
-- The scope of the key /user/anon/session/default/agent/default/ is read by its content, as in files.

-- part: columns
SELECT id, scope_key, content, timestamp, metadata

-- name: key_utc
-- include: columns
FROM episodes
WHERE of_session = short(
    '/user/' || split_part(:key, '/', 3) || '/session/' || split_part(:key, '/', 5) || '/agent/'
  )
  AND of_agent = short(split_part(:key, '/', 7) || '/')
  AND scope_key = :key
ORDER BY timestamp DESC

-- name: key_upto
-- include: columns
FROM episodes
WHERE of_session = short(
    '/user/' || split_part(:key, '/', 3) || '/session/' || split_part(:key, '/', 5) || '/agent/'
  )
  AND of_agent = short(split_part(:key, '/', 7) || '/')
  AND scope_key = :key
  AND timestamp <= :upto
ORDER BY timestamp DESC
LIMIT :limit

-- name: next_key_utc
SELECT id, scope_key, content, timestamp, metadata, scope_key
FROM episodes
WHERE of_session = short(left(:end, -1) || '/')
  AND of_agent > CASE
    WHEN split_part(:last, '/', 7) = '' THEN ''
    ELSE short(split_part(:last, '/', 7) || '/')
  END
  AND scope_key <> '/user/anon/session/default/agent/default/'
ORDER BY of_agent, timestamp DESC
LIMIT 1

-- name: agent_utc
-- include: columns
FROM episodes
WHERE of_user = short(:user)
  AND of_agent = short(:agent)
  AND scope_key <> '/user/anon/session/default/agent/default/'
ORDER BY timestamp DESC

-- name: next_agent_utc
SELECT id, scope_key, content, timestamp, metadata, of_agent
FROM episodes
WHERE of_user = short(:user)
  AND of_agent > short(:last)
  AND scope_key <> '/user/anon/session/default/agent/default/'
ORDER BY of_agent, timestamp DESC
LIMIT 1

-- name: any_other
SELECT false

-- name: owned_user
-- include: columns
FROM episodes
WHERE of_session = '/user/anon/session/default/agent/'
  AND of_agent = 'default/'
  AND :user::text = ',"user":"anon"'
  AND :agent::text IN ('', ',"agent":"default",')
  AND :utc::boolean
  AND timestamp >= :floor
  AND timestamp <= :upto
ORDER BY timestamp DESC

-- name: owned_session
-- include: columns
FROM episodes
WHERE of_session = '/user/anon/session/default/agent/'
  AND of_agent = 'default/'
  AND :session::text = ',"user":"anon","session":"default"}'
  AND :agent::text IN ('', ',"agent":"default",')
  AND :utc::boolean
  AND timestamp >= :floor
  AND timestamp <= :upto
ORDER BY timestamp DESC

-- name: any_owned
SELECT :user::text = ',"user":"anon"' AND EXISTS (
  SELECT 1
  FROM episodes
  WHERE of_session = '/user/anon/session/default/agent/'
  AND of_agent = 'default/'
)
