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

-- name: spent
SELECT calls, tokens_in, tokens_out, cost_micros
FROM slumberd_model_usage
WHERE day = ?

-- name: erase
DELETE FROM slumberd_extractions
WHERE eid IN (SELECT value FROM json_each(:ids))
  AND NOT EXISTS (SELECT 1 FROM episodes WHERE id = eid)

-- name: remove_orphans
DELETE FROM slumberd_extractions
WHERE NOT EXISTS (SELECT 1 FROM episodes WHERE id = eid)

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

-- name: remove_orphaned_summaries
DELETE FROM slumberd_model_summaries
WHERE NOT EXISTS (SELECT 1 FROM episodes WHERE id = eid)
