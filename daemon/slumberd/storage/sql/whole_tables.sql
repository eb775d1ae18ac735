-- name: count_episodes
SELECT count(*)
FROM episodes

-- name: count_episode_log
SELECT count(*)
FROM slumberd_episode_log

-- name: read_episode_deletions
-- texts: escaped
SELECT number, rid
FROM slumberd_episode_deletions
ORDER BY number

-- name: count_episode_deletions
SELECT count(*)
FROM slumberd_episode_deletions

-- name: count_accesses
SELECT count(*)
FROM slumberd_accesses

-- name: read_extractions
-- texts: escaped
SELECT key, eid, model, status, triples, dropped, problem, answer, attempts, at
FROM slumberd_extractions
ORDER BY key

-- name: count_extractions
SELECT count(*)
FROM slumberd_extractions

-- name: read_model_summaries
-- texts: escaped
SELECT key, eid, model, status, text, problem, attempts, at
FROM slumberd_model_summaries
ORDER BY key

-- name: count_model_summaries
SELECT count(*)
FROM slumberd_model_summaries

-- name: read_model_requests
-- texts: escaped
SELECT eid, id, scope_key, key, request
FROM slumberd_model_requests
ORDER BY eid, id

-- name: count_model_requests
SELECT count(*)
FROM slumberd_model_requests

-- name: read_model_usage
-- texts: escaped
SELECT day, calls, tokens_in, tokens_out, cost_micros
FROM slumberd_model_usage
ORDER BY day

-- name: count_model_usage
SELECT count(*)
FROM slumberd_model_usage

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

-- name: read_firings
-- texts: escaped
SELECT n, rule, rule_hash, cause, at, last_seq, generation, upto_seq, upto_eid, counts
FROM slumberd_firings
ORDER BY n

-- name: count_firings
SELECT count(*)
FROM slumberd_firings

-- name: read_ledger
-- texts: escaped
SELECT seq, delta, firing, what, kind, reason, version, key_id, at, fact_id, replaces, salt, payload,
  commitment, chain
FROM slumberd_ledger
ORDER BY seq

-- name: count_ledger
SELECT count(*)
FROM slumberd_ledger

-- name: read_claim_references
-- texts: escaped
SELECT referenced, referrer
FROM slumberd_references
ORDER BY referenced, referrer

-- name: count_claim_references
SELECT count(*)
FROM slumberd_references

-- name: read_watermark
-- texts: escaped
SELECT rule, seq, eid, served
FROM slumberd_watermark
ORDER BY rule

-- name: count_watermark
SELECT count(*)
FROM slumberd_watermark

-- name: read_successes
-- texts: escaped
SELECT rule, at
FROM slumberd_successes
ORDER BY rule

-- name: count_successes
SELECT count(*)
FROM slumberd_successes

-- name: read_quarantine
-- texts: escaped
SELECT rule, channel, eid, version, owner, reason, detail, seq
FROM slumberd_quarantine
ORDER BY rule, channel, eid

-- name: count_quarantine
SELECT count(*)
FROM slumberd_quarantine

-- name: read_channels
-- texts: escaped
SELECT seq, multi_valued
FROM slumberd_channels
ORDER BY seq

-- name: count_channels
SELECT count(*)
FROM slumberd_channels

-- name: read_generations
-- texts: escaped
SELECT generation, after
FROM slumberd_generations
ORDER BY generation

-- name: count_generations
SELECT count(*)
FROM slumberd_generations

-- name: read_held_batches
-- texts: escaped
SELECT rule, n, upto_seq, upto_eid, problem, approved
FROM slumberd_held_batches
ORDER BY rule

-- name: count_held_batches
SELECT count(*)
FROM slumberd_held_batches

-- name: read_unfinished_erasures
-- texts: escaped
SELECT scope, eids, moment, by
FROM slumberd_unfinished_erasures
ORDER BY scope

-- name: count_unfinished_erasures
SELECT count(*)
FROM slumberd_unfinished_erasures

-- name: read_numbers
-- texts: escaped
SELECT name, value
FROM slumberd_numbers
ORDER BY name

-- name: count_numbers
SELECT count(*)
FROM slumberd_numbers
