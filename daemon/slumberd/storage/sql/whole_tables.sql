-- name: count_episodes
SELECT count(*)
FROM episodes

-- name: count_episode_log
SELECT count(*)
FROM slumberd_episode_log

-- name: write_episode_log
-- copy: int8 int8 text
INSERT INTO slumberd_episode_log
  (seq, rid, eid)
VALUES (?, ?, ?)

-- name: read_episode_deletions
-- texts: escaped
SELECT number, rid
FROM slumberd_episode_deletions
ORDER BY number

-- name: count_episode_deletions
SELECT count(*)
FROM slumberd_episode_deletions

-- name: write_episode_deletions
-- copy: int8 int8
INSERT INTO slumberd_episode_deletions
  (number, rid)
VALUES (?, ?)

-- name: count_accesses
SELECT count(*)
FROM slumberd_accesses

-- name: write_accesses
-- copy: text text int8 int8 int4
INSERT INTO slumberd_accesses
  (eid, scope_key, count, last, held)
VALUES (?, ?, ?, ?, ?)

-- name: read_extractions
-- texts: escaped
SELECT key, eid, model, status, triples, dropped, problem, answer, attempts, at
FROM slumberd_extractions
ORDER BY key

-- name: count_extractions
SELECT count(*)
FROM slumberd_extractions

-- name: write_extractions
-- copy: text text text text text int8 text text int8 int8
INSERT INTO slumberd_extractions
  (key, eid, model, status, triples, dropped, problem, answer, attempts, at)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)

-- name: read_model_summaries
-- texts: escaped
SELECT key, eid, model, status, text, problem, attempts, at
FROM slumberd_model_summaries
ORDER BY key

-- name: count_model_summaries
SELECT count(*)
FROM slumberd_model_summaries

-- name: write_model_summaries
-- copy: text text text text text text int8 int8
INSERT INTO slumberd_model_summaries
  (key, eid, model, status, text, problem, attempts, at)
VALUES (?, ?, ?, ?, ?, ?, ?, ?)

-- name: read_model_requests
-- texts: escaped
SELECT eid, id, scope_key, key, request
FROM slumberd_model_requests
ORDER BY eid, id

-- name: count_model_requests
SELECT count(*)
FROM slumberd_model_requests

-- name: write_model_requests
-- copy: text text text text text
INSERT INTO slumberd_model_requests
  (eid, id, scope_key, key, request)
VALUES (?, ?, ?, ?, ?)

-- name: read_model_usage
-- texts: escaped
SELECT day, calls, tokens_in, tokens_out, cost_micros
FROM slumberd_model_usage
ORDER BY day

-- name: count_model_usage
SELECT count(*)
FROM slumberd_model_usage

-- name: write_model_usage
-- copy: text int8 int8 int8 int8
INSERT INTO slumberd_model_usage
  (day, calls, tokens_in, tokens_out, cost_micros)
VALUES (?, ?, ?, ?, ?)

-- name: read_facts
-- texts: lenient
SELECT fact_id, "user", agent, payload, lineage, confidence, metadata, pinned_at
FROM facts
ORDER BY fact_id

-- name: count_facts
SELECT count(*)
FROM facts

-- name: read_keys
-- texts: escaped
SELECT key, slot, key_id, winner_at, winner_rank, winner_id, winner_part, winner_fact, winner_object,
  retractions, replaced
FROM slumberd_keys
ORDER BY key, slot

-- name: count_keys
SELECT count(*)
FROM slumberd_keys

-- name: write_keys
-- copy: text text int8 int8 int8 text int8 text text bytea bytea
INSERT INTO slumberd_keys
  (key, slot, key_id, winner_at, winner_rank, winner_id, winner_part, winner_fact, winner_object,
   retractions, replaced)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)

-- name: read_firings
-- texts: escaped
SELECT n, rule, rule_hash, cause, at, last_seq, generation, upto_seq, upto_eid, counts
FROM slumberd_firings
ORDER BY n

-- name: count_firings
SELECT count(*)
FROM slumberd_firings

-- name: write_firings
-- copy: int8 text text text int8 int8 int8 int8 text bytea
INSERT INTO slumberd_firings
  (n, rule, rule_hash, cause, at, last_seq, generation, upto_seq, upto_eid, counts)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)

-- name: read_ledger
-- texts: escaped
SELECT seq, delta, firing, what, kind, reason, version, key_id, at, fact_id, replaces, salt, payload,
  commitment, chain
FROM slumberd_ledger
ORDER BY seq

-- name: count_ledger
SELECT count(*)
FROM slumberd_ledger

-- name: write_ledger
-- copy: int8 int8 int8 int4 int4 text int8 int8 int8 text text bytea bytea bytea bytea
INSERT INTO slumberd_ledger
  (seq, delta, firing, what, kind, reason, version, key_id, at, fact_id, replaces, salt, payload,
   commitment, chain)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)

-- name: read_claim_references
-- texts: escaped
SELECT referenced, referrer
FROM slumberd_references
ORDER BY referenced, referrer

-- name: count_claim_references
SELECT count(*)
FROM slumberd_references

-- name: write_claim_references
-- copy: text text
INSERT INTO slumberd_references
  (referenced, referrer)
VALUES (?, ?)

-- name: read_watermark
-- texts: escaped
SELECT rule, seq, eid, served
FROM slumberd_watermark
ORDER BY rule

-- name: count_watermark
SELECT count(*)
FROM slumberd_watermark

-- name: write_watermark
-- copy: text int8 text int8
INSERT INTO slumberd_watermark
  (rule, seq, eid, served)
VALUES (?, ?, ?, ?)

-- name: read_successes
-- texts: escaped
SELECT rule, at
FROM slumberd_successes
ORDER BY rule

-- name: count_successes
SELECT count(*)
FROM slumberd_successes

-- name: write_successes
-- copy: text int8
INSERT INTO slumberd_successes
  (rule, at)
VALUES (?, ?)

-- name: read_quarantine
-- texts: escaped
SELECT rule, channel, eid, version, owner, reason, detail, seq
FROM slumberd_quarantine
ORDER BY rule, channel, eid

-- name: count_quarantine
SELECT count(*)
FROM slumberd_quarantine

-- name: write_quarantine
-- copy: text text text int8 text text text int8
INSERT INTO slumberd_quarantine
  (rule, channel, eid, version, owner, reason, detail, seq)
VALUES (?, ?, ?, ?, ?, ?, ?, ?)

-- name: read_channels
-- texts: escaped
SELECT seq, multi_valued
FROM slumberd_channels
ORDER BY seq

-- name: count_channels
SELECT count(*)
FROM slumberd_channels

-- name: write_channels
-- copy: int8 bytea
INSERT INTO slumberd_channels
  (seq, multi_valued)
VALUES (?, ?)

-- name: read_generations
-- texts: escaped
SELECT generation, after
FROM slumberd_generations
ORDER BY generation

-- name: count_generations
SELECT count(*)
FROM slumberd_generations

-- name: write_generations
-- copy: int8 int8
INSERT INTO slumberd_generations
  (generation, after)
VALUES (?, ?)

-- name: read_held_batches
-- texts: escaped
SELECT rule, n, upto_seq, upto_eid, problem, approved
FROM slumberd_held_batches
ORDER BY rule

-- name: count_held_batches
SELECT count(*)
FROM slumberd_held_batches

-- name: write_held_batches
-- copy: text int8 int8 text text int4
INSERT INTO slumberd_held_batches
  (rule, n, upto_seq, upto_eid, problem, approved)
VALUES (?, ?, ?, ?, ?, ?)

-- name: read_unfinished_erasures
-- texts: escaped
SELECT scope, eids, moment, by
FROM slumberd_unfinished_erasures
ORDER BY scope

-- name: count_unfinished_erasures
SELECT count(*)
FROM slumberd_unfinished_erasures

-- name: write_unfinished_erasures
-- copy: text bytea int8 text
INSERT INTO slumberd_unfinished_erasures
  (scope, eids, moment, by)
VALUES (?, ?, ?, ?)

-- name: read_numbers
-- texts: escaped
SELECT name, value
FROM slumberd_numbers
ORDER BY name

-- name: count_numbers
SELECT count(*)
FROM slumberd_numbers
