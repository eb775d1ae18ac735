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
