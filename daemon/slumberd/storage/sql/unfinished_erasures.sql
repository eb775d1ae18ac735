-- name: begin
INSERT INTO slumberd_unfinished_erasures (scope, eids, moment, by)
VALUES (:scope, :eids, :moment, :by)
ON CONFLICT (scope) DO UPDATE SET
  eids = excluded.eids,
  moment = excluded.moment,
  by = excluded.by

-- name: end
DELETE FROM slumberd_unfinished_erasures
WHERE scope = ?

-- name: all
SELECT scope, eids, moment, by
FROM slumberd_unfinished_erasures
ORDER BY scope

-- name: count
SELECT count(*)
FROM slumberd_unfinished_erasures
