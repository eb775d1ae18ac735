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
