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

-- name: add_moment
INSERT INTO slumberd_erased_scopes AS known (digest, moment)
VALUES (?, ?)
ON CONFLICT (digest) DO UPDATE SET
  moment = excluded.moment
WHERE known.moment < excluded.moment

-- name: written_since
SELECT DISTINCT rid
FROM slumberd_episode_log
WHERE seq > :seq
  AND rid IS NOT NULL

-- name: blank_log
UPDATE slumberd_episode_log
SET eid = '', rid = NULL
WHERE eid
  -- include: in_eids
  AND NOT EXISTS (SELECT 1 FROM episodes WHERE id = eid)
