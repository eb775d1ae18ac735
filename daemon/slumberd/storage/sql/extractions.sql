-- name: recorded
SELECT recorded.key, recorded.status, recorded.triples, recorded.problem
-- include: from_keys
INNER JOIN slumberd_extractions AS recorded ON recorded.key = wanted.value

-- name: record
INSERT INTO slumberd_extractions AS known
  (key, eid, model, status, triples, dropped, problem, answer, attempts, at)
SELECT :key, :eid, :model, :status, :triples, :dropped, :problem, :answer, :attempts, :at
FROM episodes
WHERE id = :eid
ON CONFLICT (key) DO UPDATE SET
  status = excluded.status,
  triples = excluded.triples,
  dropped = excluded.dropped,
  problem = excluded.problem,
  answer = excluded.answer,
  attempts = known.attempts + excluded.attempts,
  at = excluded.at

-- name: spend
INSERT INTO slumberd_model_usage AS known (day, calls, tokens_in, tokens_out, cost_micros)
VALUES (:day, :calls, :tokens_in, :tokens_out, :cost_micros)
ON CONFLICT (day) DO UPDATE SET
  calls = known.calls + excluded.calls,
  tokens_in = known.tokens_in + excluded.tokens_in,
  tokens_out = known.tokens_out + excluded.tokens_out,
  cost_micros = known.cost_micros + excluded.cost_micros

-- name: spent
SELECT calls, tokens_in, tokens_out, cost_micros
FROM slumberd_model_usage
WHERE day = ?

-- name: erase
DELETE FROM slumberd_extractions
WHERE eid
  -- include: in_ids
  AND NOT EXISTS (SELECT 1 FROM episodes WHERE id = eid)

-- name: remove_orphans
DELETE FROM slumberd_extractions
WHERE NOT EXISTS (SELECT 1 FROM episodes WHERE id = eid)

-- name: summaries
SELECT recorded.key, recorded.eid, recorded.model, recorded.status, recorded.text,
  recorded.problem, recorded.attempts, recorded.at
-- include: from_ids
INNER JOIN slumberd_model_summaries AS recorded ON recorded.eid = wanted.value

-- name: record_summary
INSERT INTO slumberd_model_summaries AS known
  (key, eid, model, status, text, problem, attempts, at)
SELECT :key, :episode_id, :model, :status, :text, :problem, :attempts, :at
FROM episodes
WHERE id = :episode_id
ON CONFLICT (key) DO UPDATE SET
  status = excluded.status,
  text = excluded.text,
  problem = excluded.problem,
  attempts = known.attempts + excluded.attempts,
  at = excluded.at

-- name: erase_summaries
DELETE FROM slumberd_model_summaries
WHERE eid
  -- include: in_ids
  AND NOT EXISTS (SELECT 1 FROM episodes WHERE id = eid)

-- name: remove_orphaned_summaries
DELETE FROM slumberd_model_summaries
WHERE NOT EXISTS (SELECT 1 FROM episodes WHERE id = eid)

-- name: lost_turns
SELECT wanted.value
-- include: from_ids
WHERE NOT EXISTS (SELECT 1 FROM episodes WHERE id = wanted.value)

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

-- name: blank_requests
UPDATE slumberd_model_requests
SET request = ''
WHERE request <> ''
  AND id IN (
    SELECT source.id
    FROM slumberd_model_requests AS source
    WHERE source.eid
      -- include: in_ids
      AND NOT EXISTS (SELECT 1 FROM episodes WHERE episodes.id = source.eid)
  )

-- name: blank_answers
UPDATE slumberd_extractions
SET answer = ''
WHERE answer <> ''
  AND key IN (
    SELECT asked.key
    FROM slumberd_model_requests AS source
    INNER JOIN slumberd_model_requests AS asked ON asked.id = source.id
    WHERE source.eid
      -- include: in_ids
  )

-- name: drop_sources
DELETE FROM slumberd_model_requests
WHERE eid
  -- include: in_ids
  AND NOT EXISTS (SELECT 1 FROM episodes WHERE episodes.id = eid)

-- name: remove_orphaned_requests
DELETE FROM slumberd_model_requests
WHERE id NOT IN (
  SELECT asked.id
  FROM slumberd_model_requests AS asked
  WHERE asked.key <> ''
    AND EXISTS (SELECT 1 FROM episodes WHERE episodes.id = asked.eid)
)
