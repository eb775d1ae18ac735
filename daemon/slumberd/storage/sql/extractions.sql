-- name: spent
SELECT calls, tokens_in, tokens_out, cost_micros
FROM slumberd_model_usage
WHERE day = ?

-- name: remove_orphans
DELETE FROM slumberd_extractions
WHERE NOT EXISTS (SELECT 1 FROM episodes WHERE id = eid)

-- name: remove_orphaned_summaries
DELETE FROM slumberd_model_summaries
WHERE NOT EXISTS (SELECT 1 FROM episodes WHERE id = eid)

-- name: release_key
UPDATE slumberd_model_requests
SET key = ''
WHERE eid = :eid
  AND key = :key

-- name: record_request
INSERT INTO slumberd_model_requests (eid, id, scope_key, key, request)
VALUES (:eid, :id, :scope_key, :key, :request)
ON CONFLICT (eid, id) DO UPDATE SET
  key = excluded.key,
  request = excluded.request
