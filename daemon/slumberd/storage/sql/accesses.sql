-- name: hold
INSERT INTO slumberd_accesses AS known (eid, scope_key, count, last, held)
SELECT episodes.id, episodes.scope_key, 0, NULL, 1
-- include: from_ids
INNER JOIN episodes ON episodes.id = wanted.value
WHERE true
ON CONFLICT (eid) DO UPDATE SET
  scope_key = excluded.scope_key,
  count = CASE WHEN known.scope_key = excluded.scope_key THEN known.count ELSE 0 END,
  last = CASE WHEN known.scope_key = excluded.scope_key THEN known.last END,
  held = 1

-- name: accesses
SELECT accesses.eid, accesses.count, accesses.last
-- include: from_ids
INNER JOIN slumberd_accesses AS accesses ON accesses.eid = wanted.value
INNER JOIN episodes ON episodes.id = accesses.eid AND episodes.scope_key = accesses.scope_key
WHERE accesses.count > 0

-- name: let_go
UPDATE slumberd_accesses
SET held = 0
WHERE eid
  -- include: in_ids
  AND held != 0

-- name: erase
DELETE FROM slumberd_accesses
WHERE eid
  -- include: in_ids
  AND NOT EXISTS (SELECT 1 FROM episodes WHERE id = eid)
