-- name: recorded
SELECT recorded.key, recorded.status, recorded.triples, recorded.problem
FROM unnest(:keys::text[]) AS wanted(value)
INNER JOIN slumberd.extractions AS recorded
  ON recorded.shard = :shard
  AND recorded.key = wanted.value

-- name: record
INSERT INTO slumberd.extractions
  (shard, key, eid, model, status, triples, dropped, problem, answer, attempts, at)
SELECT :shard, :key, :eid, :model, :status, :triples, :dropped, :problem, :answer, :attempts, :at
FROM slumberd.episodes
WHERE shard = :shard
  AND id = :eid
ON CONFLICT (shard, key) DO UPDATE SET
  status = excluded.status,
  triples = excluded.triples,
  dropped = excluded.dropped,
  problem = excluded.problem,
  answer = excluded.answer,
  attempts = extractions.attempts + excluded.attempts,
  at = excluded.at

-- name: spend
INSERT INTO slumberd.model_usage AS known
  (shard, day, calls, tokens_in, tokens_out, cost_micros)
VALUES (:shard, :day, :calls, :tokens_in, :tokens_out, :cost_micros)
ON CONFLICT (shard, day) DO UPDATE SET
  calls = known.calls + excluded.calls,
  tokens_in = known.tokens_in + excluded.tokens_in,
  tokens_out = known.tokens_out + excluded.tokens_out,
  cost_micros = known.cost_micros + excluded.cost_micros

-- name: spent
SELECT calls, tokens_in, tokens_out, cost_micros
FROM slumberd.model_usage
WHERE shard = :shard
  AND day = ?

-- name: erase
DELETE FROM slumberd.extractions
WHERE shard = :shard
  AND eid = ANY (:ids::text[])
  AND NOT EXISTS (SELECT 1 FROM slumberd.episodes WHERE shard = :shard AND id = eid)

-- name: remove_orphans
DELETE FROM slumberd.extractions
WHERE shard = :shard
  AND NOT EXISTS (SELECT 1 FROM slumberd.episodes WHERE shard = :shard AND id = eid)

-- name: summaries
SELECT recorded.key, recorded.eid, recorded.model, recorded.status, recorded.text,
  recorded.problem, recorded.attempts, recorded.at
FROM unnest(:ids::text[]) AS wanted(value)
INNER JOIN slumberd.model_summaries AS recorded
  ON recorded.shard = :shard
  AND recorded.eid = wanted.value

-- name: record_summary
INSERT INTO slumberd.model_summaries
  (shard, key, eid, model, status, text, problem, attempts, at)
SELECT :shard, :key, :episode_id, :model, :status, :text, :problem, :attempts, :at
FROM slumberd.episodes
WHERE shard = :shard
  AND id = :episode_id
ON CONFLICT (shard, key) DO UPDATE SET
  status = excluded.status,
  text = excluded.text,
  problem = excluded.problem,
  attempts = model_summaries.attempts + excluded.attempts,
  at = excluded.at

-- name: erase_summaries
DELETE FROM slumberd.model_summaries
WHERE shard = :shard
  AND eid = ANY (:ids::text[])
  AND NOT EXISTS (SELECT 1 FROM slumberd.episodes WHERE shard = :shard AND id = eid)

-- name: remove_orphaned_summaries
DELETE FROM slumberd.model_summaries
WHERE shard = :shard
  AND NOT EXISTS (SELECT 1 FROM slumberd.episodes WHERE shard = :shard AND id = eid)

-- name: lost_turns
SELECT wanted.value
FROM unnest(:ids::text[]) AS wanted(value)
WHERE NOT EXISTS (SELECT 1 FROM slumberd.episodes WHERE shard = :shard AND id = wanted.value)

-- name: release_key
UPDATE slumberd.model_requests
SET key = ''
WHERE shard = :shard
  AND eid = :eid
  AND key = :key

-- name: record_request
INSERT INTO slumberd.model_requests (shard, eid, id, scope_key, key, request)
VALUES (:shard, :eid, :id, :scope_key, :key, :request)
ON CONFLICT (shard, eid, id) DO UPDATE SET
  key = excluded.key,
  request = excluded.request

-- name: blank_requests
UPDATE slumberd.model_requests
SET request = ''
WHERE shard = :shard
  AND request <> ''
  AND id IN (
    SELECT source.id
    FROM slumberd.model_requests AS source
    WHERE source.shard = :shard
      AND source.eid = ANY (:ids::text[])
      AND NOT EXISTS (SELECT 1 FROM slumberd.episodes WHERE shard = :shard AND id = source.eid)
  )

-- name: blank_answers
UPDATE slumberd.extractions
SET answer = ''
WHERE shard = :shard
  AND answer <> ''
  AND key IN (
    SELECT asked.key
    FROM slumberd.model_requests AS source
    INNER JOIN slumberd.model_requests AS asked
      ON asked.shard = :shard
      AND asked.id = source.id
    WHERE source.shard = :shard
      AND source.eid = ANY (:ids::text[])
  )

-- name: drop_sources
DELETE FROM slumberd.model_requests
WHERE shard = :shard
  AND eid = ANY (:ids::text[])
  AND NOT EXISTS (SELECT 1 FROM slumberd.episodes WHERE shard = :shard AND id = eid)

-- name: remove_orphaned_requests
DELETE FROM slumberd.model_requests
WHERE shard = :shard
  AND id NOT IN (
    SELECT asked.id
    FROM slumberd.model_requests AS asked
    WHERE asked.shard = :shard
      AND asked.key <> ''
      AND EXISTS (SELECT 1 FROM slumberd.episodes WHERE shard = :shard AND id = asked.eid)
  )
