-- name: create_table
CREATE TABLE slumberd_extractions (
  key TEXT PRIMARY KEY,
  eid TEXT NOT NULL,
  model TEXT NOT NULL,
  status TEXT NOT NULL,
  triples TEXT NOT NULL,
  dropped INTEGER NOT NULL,
  problem TEXT NOT NULL,
  answer TEXT NOT NULL,
  attempts INTEGER NOT NULL,
  at INTEGER NOT NULL
) WITHOUT ROWID

-- name: create_index
CREATE INDEX IF NOT EXISTS slumberd_extractions_eid ON slumberd_extractions (eid)

-- name: create_summaries
CREATE TABLE slumberd_model_summaries (
  key TEXT PRIMARY KEY,
  eid TEXT NOT NULL,
  model TEXT NOT NULL,
  status TEXT NOT NULL,
  text TEXT NOT NULL,
  problem TEXT NOT NULL,
  attempts INTEGER NOT NULL,
  at INTEGER NOT NULL
) WITHOUT ROWID

-- name: create_summary_index
CREATE INDEX IF NOT EXISTS slumberd_model_summaries_eid ON slumberd_model_summaries (eid)

-- name: create_usage
CREATE TABLE slumberd_model_usage (
  day TEXT PRIMARY KEY,
  calls INTEGER NOT NULL,
  tokens_in INTEGER NOT NULL,
  tokens_out INTEGER NOT NULL,
  cost_micros INTEGER NOT NULL
) WITHOUT ROWID

-- name: create_requests
CREATE TABLE slumberd_model_requests (
  eid TEXT NOT NULL,
  id TEXT NOT NULL,
  scope_key TEXT NOT NULL,
  key TEXT NOT NULL,
  request TEXT NOT NULL,
  PRIMARY KEY (eid, id)
) WITHOUT ROWID

-- name: create_request_index
CREATE INDEX IF NOT EXISTS slumberd_model_requests_id ON slumberd_model_requests (id)

-- name: recorded
SELECT recorded.key, recorded.status, recorded.triples, recorded.problem
FROM json_each(:keys) AS wanted
CROSS JOIN slumberd_extractions AS recorded ON recorded.key = wanted.value

-- name: record
INSERT INTO slumberd_extractions
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
  attempts = slumberd_extractions.attempts + excluded.attempts,
  at = excluded.at

-- name: spend
INSERT INTO slumberd_model_usage (day, calls, tokens_in, tokens_out, cost_micros)
VALUES (:day, :calls, :tokens_in, :tokens_out, :cost_micros)
ON CONFLICT (day) DO UPDATE SET
  calls = calls + excluded.calls,
  tokens_in = tokens_in + excluded.tokens_in,
  tokens_out = tokens_out + excluded.tokens_out,
  cost_micros = cost_micros + excluded.cost_micros

-- name: erase
DELETE FROM slumberd_extractions
WHERE eid IN (SELECT value FROM json_each(:ids))
  AND NOT EXISTS (SELECT 1 FROM episodes WHERE id = eid)

-- name: summaries
SELECT recorded.key, recorded.eid, recorded.model, recorded.status, recorded.text,
  recorded.problem, recorded.attempts, recorded.at
FROM json_each(:ids) AS wanted
CROSS JOIN slumberd_model_summaries AS recorded ON recorded.eid = wanted.value

-- name: record_summary
INSERT INTO slumberd_model_summaries (key, eid, model, status, text, problem, attempts, at)
SELECT :key, :episode_id, :model, :status, :text, :problem, :attempts, :at
FROM episodes
WHERE id = :episode_id
ON CONFLICT (key) DO UPDATE SET
  status = excluded.status,
  text = excluded.text,
  problem = excluded.problem,
  attempts = slumberd_model_summaries.attempts + excluded.attempts,
  at = excluded.at

-- name: erase_summaries
DELETE FROM slumberd_model_summaries
WHERE eid IN (SELECT value FROM json_each(:ids))
  AND NOT EXISTS (SELECT 1 FROM episodes WHERE id = eid)

-- name: lost_turns
SELECT wanted.value
FROM json_each(:ids) AS wanted
WHERE NOT EXISTS (SELECT 1 FROM episodes WHERE id = wanted.value)

-- name: blank_requests
UPDATE slumberd_model_requests
SET request = ''
WHERE request <> ''
  AND id IN (
    SELECT id
    FROM slumberd_model_requests
    WHERE eid IN (SELECT value FROM json_each(:ids))
      AND NOT EXISTS (SELECT 1 FROM episodes WHERE episodes.id = eid)
  )

-- name: blank_answers
UPDATE slumberd_extractions
SET answer = ''
WHERE answer <> ''
  AND key IN (
    SELECT asked.key
    FROM json_each(:ids) AS wanted
    CROSS JOIN slumberd_model_requests AS source ON source.eid = wanted.value
    CROSS JOIN slumberd_model_requests AS asked ON asked.id = source.id
  )

-- name: drop_sources
DELETE FROM slumberd_model_requests
WHERE eid IN (SELECT value FROM json_each(:ids))
  AND NOT EXISTS (SELECT 1 FROM episodes WHERE episodes.id = eid)

-- name: remove_orphaned_requests
DELETE FROM slumberd_model_requests
WHERE id NOT IN (
  SELECT id
  FROM slumberd_model_requests
  WHERE key <> ''
    AND EXISTS (SELECT 1 FROM episodes WHERE episodes.id = eid)
)
