-- name: add_key
INSERT INTO slumberd_erasure_key (id, key)
VALUES (1, ?)
ON CONFLICT DO NOTHING

-- name: key
SELECT key
FROM slumberd_erasure_key

-- name: moments
SELECT digest, moment
FROM slumberd_erased_scopes

-- name: moment
SELECT moment
FROM slumberd_erased_scopes
WHERE digest = ?

-- name: written_since
SELECT DISTINCT rid
FROM slumberd_episode_log
WHERE seq > :seq
  AND rid IS NOT NULL
