-- name: read
INSERT INTO slumberd.accesses AS known (shard, eid, scope_key, count, last, held)
SELECT :shard, episodes.id, episodes.scope_key, noted.count, noted.last, 0
FROM unnest(:noted_1::text[], :noted_2::bigint[], :noted_3::bigint[]) AS noted(eid, count, last)
INNER JOIN slumberd.episodes ON episodes.shard = :shard AND episodes.id = noted.eid
ON CONFLICT (shard, eid) DO UPDATE SET
  scope_key = excluded.scope_key,
  count = excluded.count
    + CASE WHEN known.scope_key = excluded.scope_key THEN known.count ELSE 0 END,
  last = CASE WHEN known.scope_key = excluded.scope_key
    THEN greatest(known.last, excluded.last)
    ELSE excluded.last END

-- name: hold
INSERT INTO slumberd.accesses AS known (shard, eid, scope_key, count, last, held)
SELECT :shard, episodes.id, episodes.scope_key, 0, NULL::bigint, 1
FROM unnest(:ids::text[]) AS wanted(value)
INNER JOIN slumberd.episodes ON episodes.shard = :shard AND episodes.id = wanted.value
ON CONFLICT (shard, eid) DO UPDATE SET
  scope_key = excluded.scope_key,
  count = CASE WHEN known.scope_key = excluded.scope_key THEN known.count ELSE 0 END,
  last = CASE WHEN known.scope_key = excluded.scope_key THEN known.last END,
  held = 1

-- name: accesses
SELECT accesses.eid, accesses.count, accesses.last
FROM unnest(:ids::text[]) AS wanted(value)
INNER JOIN slumberd.accesses AS accesses ON accesses.shard = :shard AND accesses.eid = wanted.value
INNER JOIN slumberd.episodes
  ON episodes.shard = :shard
  AND episodes.id = accesses.eid
  AND episodes.scope_key = accesses.scope_key
WHERE accesses.count > 0

-- name: log_again
INSERT INTO slumberd.inbox (shard, rid, eid)
SELECT :shard, NULL::bigint, accesses.eid
FROM unnest(:ids::text[]) AS wanted(value)
INNER JOIN slumberd.accesses AS accesses ON accesses.shard = :shard AND accesses.eid = wanted.value
INNER JOIN slumberd.episodes ON episodes.shard = :shard AND episodes.id = accesses.eid
WHERE accesses.held != 0

-- name: let_go
UPDATE slumberd.accesses
SET held = 0
WHERE shard = :shard
  AND eid = ANY (:ids::text[])
  AND held != 0

-- name: erase
DELETE FROM slumberd.accesses
WHERE shard = :shard
  AND eid = ANY (:ids::text[])
  AND NOT EXISTS (SELECT 1 FROM slumberd.episodes WHERE shard = :shard AND id = eid)
