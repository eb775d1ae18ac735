-- name: exact_utc
SELECT id, scope_key, content, timestamp, metadata
FROM episodes
WHERE scope_key = :key
  AND (
    timestamp GLOB '????-??-??T??:??:??+00:00'
    OR (timestamp GLOB '*T??:??:??.??????+00:00' AND timestamp NOT GLOB '*.000000+00:00')
  )
ORDER BY timestamp DESC

-- name: exact_other
SELECT id, scope_key, content, timestamp, metadata
FROM episodes
WHERE scope_key = :key
  AND timestamp >= :floor
  AND NOT (
    timestamp GLOB '????-??-??T??:??:??+00:00'
    OR (timestamp GLOB '*T??:??:??.??????+00:00' AND timestamp NOT GLOB '*.000000+00:00')
  )
ORDER BY timestamp DESC

-- name: session_utc
SELECT id, scope_key, content, timestamp, metadata
FROM episodes
WHERE scope_key >= :key
  AND scope_key < :end
  AND (
    timestamp GLOB '????-??-??T??:??:??+00:00'
    OR (timestamp GLOB '*T??:??:??.??????+00:00' AND timestamp NOT GLOB '*.000000+00:00')
  )
ORDER BY timestamp DESC

-- name: session_other
SELECT id, scope_key, content, timestamp, metadata
FROM episodes
WHERE scope_key >= :key
  AND scope_key < :end
  AND timestamp >= :floor
  AND NOT (
    timestamp GLOB '????-??-??T??:??:??+00:00'
    OR (timestamp GLOB '*T??:??:??.??????+00:00' AND timestamp NOT GLOB '*.000000+00:00')
  )
ORDER BY timestamp DESC

-- name: user_utc
SELECT id, scope_key, content, timestamp, metadata
FROM episodes INDEXED BY slumberd_episodes_user
WHERE substr(scope_key, 1, 6 + instr(substr(scope_key, 7), '/')) = :key
  AND (
    timestamp GLOB '????-??-??T??:??:??+00:00'
    OR (timestamp GLOB '*T??:??:??.??????+00:00' AND timestamp NOT GLOB '*.000000+00:00')
  )
  AND (:tail IS NULL OR substr(scope_key, -length(:tail)) = :tail)
ORDER BY timestamp DESC

-- name: user_other
SELECT id, scope_key, content, timestamp, metadata
FROM episodes INDEXED BY slumberd_episodes_user
WHERE substr(scope_key, 1, 6 + instr(substr(scope_key, 7), '/')) = :key
  AND timestamp >= :floor
  AND NOT (
    timestamp GLOB '????-??-??T??:??:??+00:00'
    OR (timestamp GLOB '*T??:??:??.??????+00:00' AND timestamp NOT GLOB '*.000000+00:00')
  )
  AND (:tail IS NULL OR substr(scope_key, -length(:tail)) = :tail)
ORDER BY timestamp DESC
