-- name: begin
INSERT INTO slumberd.unfinished_erasures (shard, scope, eids, moment, by)
VALUES (:shard, :scope, :eids, :moment, :by)
ON CONFLICT (shard, scope) DO UPDATE SET
  eids = excluded.eids,
  moment = excluded.moment,
  by = excluded.by

-- name: end
DELETE FROM slumberd.unfinished_erasures
WHERE shard = :shard
  AND scope = ?

-- name: all
SELECT scope, eids, moment, by
FROM slumberd.unfinished_erasures
WHERE shard = :shard
ORDER BY scope

-- name: count
SELECT count(*)
FROM slumberd.unfinished_erasures
WHERE shard = :shard
