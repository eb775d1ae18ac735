-- name: key_utc
SELECT id, scope_key, content, timestamp, metadata
FROM episodes
WHERE scope_key = CAST(:key AS TEXT)
  AND typeof(timestamp) = 'text'
  AND (
    timestamp GLOB '????-??-??T??:??:??+00:00'
    OR (timestamp GLOB '*T??:??:??.??????+00:00' AND timestamp NOT GLOB '*.000000+00:00')
  )
ORDER BY timestamp DESC

-- name: next_key_utc
SELECT id, scope_key, content, timestamp, metadata, CAST(scope_key AS BLOB)
FROM episodes
WHERE scope_key > CAST(:last AS TEXT)
  AND scope_key < :end
  AND typeof(timestamp) = 'text'
  AND (
    timestamp GLOB '????-??-??T??:??:??+00:00'
    OR (timestamp GLOB '*T??:??:??.??????+00:00' AND timestamp NOT GLOB '*.000000+00:00')
  )
ORDER BY scope_key, timestamp DESC
LIMIT 1

-- name: agent_utc
SELECT id, scope_key, content, timestamp, metadata
FROM episodes INDEXED BY slumberd_episodes_utc
WHERE substr(scope_key, 1, 6 + instr(substr(scope_key, 7), '/')) = :user
  AND substr(
    substr(scope_key, 15 + instr(substr(scope_key, 7), '/')),
    7 + instr(substr(scope_key, 15 + instr(substr(scope_key, 7), '/')), '/')
  ) = +CAST(:agent AS TEXT)
  AND typeof(timestamp) = 'text'
  AND (
    timestamp GLOB '????-??-??T??:??:??+00:00'
    OR (timestamp GLOB '*T??:??:??.??????+00:00' AND timestamp NOT GLOB '*.000000+00:00')
  )
ORDER BY timestamp DESC

-- name: next_agent_utc
SELECT id, scope_key, content, timestamp, metadata,
  CAST(substr(
    substr(scope_key, 15 + instr(substr(scope_key, 7), '/')),
    7 + instr(substr(scope_key, 15 + instr(substr(scope_key, 7), '/')), '/')
  ) AS BLOB)
FROM episodes INDEXED BY slumberd_episodes_utc
WHERE substr(scope_key, 1, 6 + instr(substr(scope_key, 7), '/')) = :user
  AND substr(
    substr(scope_key, 15 + instr(substr(scope_key, 7), '/')),
    7 + instr(substr(scope_key, 15 + instr(substr(scope_key, 7), '/')), '/')
  ) > +CAST(:last AS TEXT)
  AND typeof(timestamp) = 'text'
  AND (
    timestamp GLOB '????-??-??T??:??:??+00:00'
    OR (timestamp GLOB '*T??:??:??.??????+00:00' AND timestamp NOT GLOB '*.000000+00:00')
  )
ORDER BY
  substr(
    substr(scope_key, 15 + instr(substr(scope_key, 7), '/')),
    7 + instr(substr(scope_key, 15 + instr(substr(scope_key, 7), '/')), '/')
  ),
  timestamp DESC
LIMIT 1

-- name: key_other
SELECT id, scope_key, content, timestamp, metadata
FROM episodes
WHERE scope_key = CAST(:key AS TEXT)
  AND timestamp >= :floor
  AND typeof(timestamp) = 'text'
  AND NOT (
    timestamp GLOB '????-??-??T??:??:??+00:00'
    OR (timestamp GLOB '*T??:??:??.??????+00:00' AND timestamp NOT GLOB '*.000000+00:00')
  )
ORDER BY timestamp DESC

-- name: next_key_other
SELECT id, scope_key, content, timestamp, metadata, CAST(scope_key AS BLOB)
FROM episodes
WHERE scope_key > CAST(:last AS TEXT)
  AND scope_key < :end
  AND typeof(timestamp) = 'text'
  AND NOT (
    timestamp GLOB '????-??-??T??:??:??+00:00'
    OR (timestamp GLOB '*T??:??:??.??????+00:00' AND timestamp NOT GLOB '*.000000+00:00')
  )
ORDER BY scope_key, timestamp DESC
LIMIT 1

-- name: agent_other
SELECT id, scope_key, content, timestamp, metadata
FROM episodes INDEXED BY slumberd_episodes_other
WHERE substr(scope_key, 1, 6 + instr(substr(scope_key, 7), '/')) = :user
  AND substr(
    substr(scope_key, 15 + instr(substr(scope_key, 7), '/')),
    7 + instr(substr(scope_key, 15 + instr(substr(scope_key, 7), '/')), '/')
  ) = +CAST(:agent AS TEXT)
  AND timestamp >= :floor
  AND typeof(timestamp) = 'text'
  AND NOT (
    timestamp GLOB '????-??-??T??:??:??+00:00'
    OR (timestamp GLOB '*T??:??:??.??????+00:00' AND timestamp NOT GLOB '*.000000+00:00')
  )
ORDER BY timestamp DESC

-- name: next_agent_other
SELECT id, scope_key, content, timestamp, metadata,
  CAST(substr(
    substr(scope_key, 15 + instr(substr(scope_key, 7), '/')),
    7 + instr(substr(scope_key, 15 + instr(substr(scope_key, 7), '/')), '/')
  ) AS BLOB)
FROM episodes INDEXED BY slumberd_episodes_other
WHERE substr(scope_key, 1, 6 + instr(substr(scope_key, 7), '/')) = :user
  AND substr(
    substr(scope_key, 15 + instr(substr(scope_key, 7), '/')),
    7 + instr(substr(scope_key, 15 + instr(substr(scope_key, 7), '/')), '/')
  ) > +CAST(:last AS TEXT)
  AND typeof(timestamp) = 'text'
  AND NOT (
    timestamp GLOB '????-??-??T??:??:??+00:00'
    OR (timestamp GLOB '*T??:??:??.??????+00:00' AND timestamp NOT GLOB '*.000000+00:00')
  )
ORDER BY
  substr(
    substr(scope_key, 15 + instr(substr(scope_key, 7), '/')),
    7 + instr(substr(scope_key, 15 + instr(substr(scope_key, 7), '/')), '/')
  ),
  timestamp DESC
LIMIT 1

-- name: any_other
SELECT EXISTS (
  SELECT 1
  FROM episodes INDEXED BY slumberd_episodes_other
  WHERE substr(scope_key, 1, 6 + instr(substr(scope_key, 7), '/')) = :user
    AND NOT (
      timestamp GLOB '????-??-??T??:??:??+00:00'
      OR (timestamp GLOB '*T??:??:??.??????+00:00' AND timestamp NOT GLOB '*.000000+00:00')
    )
)
