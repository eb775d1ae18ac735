-- Read and write every table of a shard whole, in the order of its key. Keys come first.

-- name: read_episodes
SELECT rid, id, scope_key, content, timestamp, metadata
FROM slumberd.episodes
WHERE shard = :shard
ORDER BY rid

-- name: count_episodes
SELECT count(*)
FROM slumberd.episodes
WHERE shard = :shard

-- name: write_episodes
-- copy: int2 int8 text text bytea text bytea
-- Into the partition: no trigger logs the rows, and no policy of the table applies.
COPY slumberd.episodes_{shard}
  (shard, rid, id, scope_key, content, timestamp, metadata)
FROM STDIN (FORMAT BINARY)

-- name: read_episode_log
-- What was put and has no number yet comes last, with the numbers that it gets next.
SELECT seq, rid, eid
FROM (
  SELECT seq, rid, eid
  FROM slumberd.episode_log
  WHERE shard = :shard
  UNION ALL
  SELECT ends.seq + row_number() OVER (ORDER BY inbox.n), inbox.rid, inbox.eid
  FROM slumberd.inbox AS inbox
  INNER JOIN slumberd.log_ends AS ends ON ends.shard = :shard
  WHERE inbox.shard = :shard
) AS versions
ORDER BY seq

-- name: count_episode_log
SELECT count(*)
FROM slumberd.episode_log
WHERE shard = :shard

-- name: write_episode_log
-- copy: int2 int8 int8 text
COPY slumberd.episode_log
  (shard, seq, rid, eid)
FROM STDIN (FORMAT BINARY)

-- name: read_episode_deletions
SELECT number, rid
FROM slumberd.episode_deletions
WHERE shard = :shard
ORDER BY number

-- name: count_episode_deletions
SELECT count(*)
FROM slumberd.episode_deletions
WHERE shard = :shard

-- name: write_episode_deletions
-- copy: int2 int8 int8
COPY slumberd.episode_deletions
  (shard, number, rid)
FROM STDIN (FORMAT BINARY)

-- name: read_accesses
SELECT eid, scope_key, count, last, held
FROM slumberd.accesses
WHERE shard = :shard
ORDER BY eid

-- name: count_accesses
SELECT count(*)
FROM slumberd.accesses
WHERE shard = :shard

-- name: write_accesses
-- copy: int2 text text int8 int8 int4
COPY slumberd.accesses
  (shard, eid, scope_key, count, last, held)
FROM STDIN (FORMAT BINARY)

-- name: read_extractions
SELECT key, eid, model, status, triples, dropped, problem, answer, attempts, at
FROM slumberd.extractions
WHERE shard = :shard
ORDER BY key

-- name: count_extractions
SELECT count(*)
FROM slumberd.extractions
WHERE shard = :shard

-- name: write_extractions
-- copy: int2 text text text text text int8 text text int8 int8
COPY slumberd.extractions
  (shard, key, eid, model, status, triples, dropped, problem, answer, attempts, at)
FROM STDIN (FORMAT BINARY)

-- name: read_model_summaries
SELECT key, eid, model, status, text, problem, attempts, at
FROM slumberd.model_summaries
WHERE shard = :shard
ORDER BY key

-- name: count_model_summaries
SELECT count(*)
FROM slumberd.model_summaries
WHERE shard = :shard

-- name: write_model_summaries
-- copy: int2 text text text text text text int8 int8
COPY slumberd.model_summaries
  (shard, key, eid, model, status, text, problem, attempts, at)
FROM STDIN (FORMAT BINARY)

-- name: read_model_requests
SELECT eid, id, scope_key, key, request
FROM slumberd.model_requests
WHERE shard = :shard
ORDER BY eid, id

-- name: count_model_requests
SELECT count(*)
FROM slumberd.model_requests
WHERE shard = :shard

-- name: write_model_requests
-- copy: int2 text text text text text
COPY slumberd.model_requests
  (shard, eid, id, scope_key, key, request)
FROM STDIN (FORMAT BINARY)

-- name: read_model_usage
SELECT day, calls, tokens_in, tokens_out, cost_micros
FROM slumberd.model_usage
WHERE shard = :shard
ORDER BY day

-- name: count_model_usage
SELECT count(*)
FROM slumberd.model_usage
WHERE shard = :shard

-- name: write_model_usage
-- copy: int2 text int8 int8 int8 int8
COPY slumberd.model_usage
  (shard, day, calls, tokens_in, tokens_out, cost_micros)
FROM STDIN (FORMAT BINARY)

-- name: read_facts
SELECT fact_id, "user", agent, payload, lineage, confidence, metadata, pinned_at
FROM slumberd.facts
WHERE shard = :shard
ORDER BY fact_id

-- name: count_facts
SELECT count(*)
FROM slumberd.facts
WHERE shard = :shard

-- name: write_facts
-- copy: int2 text text text bytea bytea float8 bytea text text text text float8
-- Into the partition: no trigger logs the rows, and no policy of the table applies.
COPY slumberd.facts_{shard}
  (shard, fact_id, "user", agent, payload, lineage, confidence, metadata, pinned_at, subject,
   predicate, object, object_number)
FROM STDIN (FORMAT BINARY)

-- name: read_keys
SELECT key, slot, key_id, winner_at, winner_rank, winner_id, winner_part, winner_fact, winner_object,
  retractions, replaced
FROM slumberd.keys
WHERE shard = :shard
ORDER BY key, slot

-- name: count_keys
SELECT count(*)
FROM slumberd.keys
WHERE shard = :shard

-- name: write_keys
-- copy: int2 text text int8 int8 int8 text int8 text text bytea bytea
COPY slumberd.keys
  (shard, key, slot, key_id, winner_at, winner_rank, winner_id, winner_part, winner_fact,
   winner_object, retractions, replaced)
FROM STDIN (FORMAT BINARY)

-- name: read_firings
SELECT n, rule, rule_hash, cause, at, last_seq, generation, upto_seq, upto_eid, counts
FROM slumberd.firings
WHERE shard = :shard
ORDER BY n

-- name: count_firings
SELECT count(*)
FROM slumberd.firings
WHERE shard = :shard

-- name: write_firings
-- copy: int2 int8 text text text int8 int8 int8 int8 text bytea
COPY slumberd.firings
  (shard, n, rule, rule_hash, cause, at, last_seq, generation, upto_seq, upto_eid, counts)
FROM STDIN (FORMAT BINARY)

-- name: read_ledger
SELECT seq, delta, firing, what, kind, reason, version, key_id, at, fact_id, replaces, salt, payload,
  commitment, chain
FROM slumberd.ledger
WHERE shard = :shard
ORDER BY seq

-- name: count_ledger
SELECT count(*)
FROM slumberd.ledger
WHERE shard = :shard

-- name: write_ledger
-- copy: int2 int8 int8 int8 int4 int4 text int8 int8 int8 text text bytea bytea bytea bytea
COPY slumberd.ledger
  (shard, seq, delta, firing, what, kind, reason, version, key_id, at, fact_id, replaces, salt,
   payload, commitment, chain)
FROM STDIN (FORMAT BINARY)

-- name: read_claim_references
SELECT referenced, referrer
FROM slumberd.claim_references
WHERE shard = :shard
ORDER BY referenced, referrer

-- name: count_claim_references
SELECT count(*)
FROM slumberd.claim_references
WHERE shard = :shard

-- name: write_claim_references
-- copy: int2 text text
COPY slumberd.claim_references
  (shard, referenced, referrer)
FROM STDIN (FORMAT BINARY)

-- name: read_watermark
SELECT rule, seq, eid, served
FROM slumberd.watermark
WHERE shard = :shard
ORDER BY rule

-- name: count_watermark
SELECT count(*)
FROM slumberd.watermark
WHERE shard = :shard

-- name: write_watermark
-- copy: int2 text int8 text int8
COPY slumberd.watermark
  (shard, rule, seq, eid, served)
FROM STDIN (FORMAT BINARY)

-- name: read_successes
SELECT rule, at
FROM slumberd.successes
WHERE shard = :shard
ORDER BY rule

-- name: count_successes
SELECT count(*)
FROM slumberd.successes
WHERE shard = :shard

-- name: write_successes
-- copy: int2 text int8
COPY slumberd.successes
  (shard, rule, at)
FROM STDIN (FORMAT BINARY)

-- name: read_quarantine
SELECT rule, channel, eid, version, owner, reason, detail, seq
FROM slumberd.quarantine
WHERE shard = :shard
ORDER BY rule, channel, eid

-- name: count_quarantine
SELECT count(*)
FROM slumberd.quarantine
WHERE shard = :shard

-- name: write_quarantine
-- copy: int2 text text text int8 text text text int8
COPY slumberd.quarantine
  (shard, rule, channel, eid, version, owner, reason, detail, seq)
FROM STDIN (FORMAT BINARY)

-- name: read_channels
SELECT seq, multi_valued
FROM slumberd.channels
WHERE shard = :shard
ORDER BY seq

-- name: count_channels
SELECT count(*)
FROM slumberd.channels
WHERE shard = :shard

-- name: write_channels
-- copy: int2 int8 bytea
COPY slumberd.channels
  (shard, seq, multi_valued)
FROM STDIN (FORMAT BINARY)

-- name: read_generations
SELECT generation, after
FROM slumberd.generations
WHERE shard = :shard
ORDER BY generation

-- name: count_generations
SELECT count(*)
FROM slumberd.generations
WHERE shard = :shard

-- name: write_generations
-- copy: int2 int8 int8
COPY slumberd.generations
  (shard, generation, after)
FROM STDIN (FORMAT BINARY)

-- name: read_held_batches
SELECT rule, n, upto_seq, upto_eid, problem, approved
FROM slumberd.held_batches
WHERE shard = :shard
ORDER BY rule

-- name: count_held_batches
SELECT count(*)
FROM slumberd.held_batches
WHERE shard = :shard

-- name: write_held_batches
-- copy: int2 text int8 int8 text text int4
COPY slumberd.held_batches
  (shard, rule, n, upto_seq, upto_eid, problem, approved)
FROM STDIN (FORMAT BINARY)

-- name: read_unfinished_erasures
SELECT scope, eids, moment, by
FROM slumberd.unfinished_erasures
WHERE shard = :shard
ORDER BY scope

-- name: count_unfinished_erasures
SELECT count(*)
FROM slumberd.unfinished_erasures
WHERE shard = :shard

-- name: write_unfinished_erasures
-- copy: int2 text bytea int8 text
COPY slumberd.unfinished_erasures
  (shard, scope, eids, moment, by)
FROM STDIN (FORMAT BINARY)

-- name: read_numbers
SELECT name, value
FROM slumberd.numbers
WHERE shard = :shard
ORDER BY name

-- name: count_numbers
SELECT count(*)
FROM slumberd.numbers
WHERE shard = :shard

-- name: write_numbers
-- many: each parameter is an array
INSERT INTO slumberd.numbers (shard, name, value)
SELECT :shard, name, value
FROM unnest(?::text[], ?::bigint[]) AS given(name, value)
ON CONFLICT (shard, name) DO UPDATE SET
  value = excluded.value

-- name: log_end
SELECT seq + (SELECT count(*) FROM slumberd.inbox WHERE shard = :shard), deletion
FROM slumberd.log_ends
WHERE shard = :shard

-- name: write_log_end
UPDATE slumberd.log_ends
SET seq = ?, deletion = ?
WHERE shard = :shard

-- name: write_episode_ids
INSERT INTO slumberd.episode_ids (id, shard)
SELECT id, shard
FROM slumberd.episodes
WHERE shard = :shard

-- name: last_rid
SELECT max(rid)
FROM slumberd.episodes
WHERE shard = :shard

-- name: continue_episode_numbers
SELECT setval('slumberd.episode_numbers', greatest(?::bigint, nextval('slumberd.episode_numbers')))

-- name: count_shards
SELECT count(*)
FROM slumberd.shards

-- name: lock_log_end
SELECT seq
FROM slumberd.log_ends
WHERE shard = :shard
FOR UPDATE

-- name: lock_epoch
SELECT value
FROM slumberd.numbers
WHERE shard = :shard
  AND name = 'epoch'
FOR UPDATE

-- name: columns
SELECT attname::text
FROM pg_attribute
WHERE attrelid = to_regclass('slumberd.' || :table::text)
  AND attnum > 0
  AND NOT attisdropped

-- name: no_idle_timeout
SET LOCAL idle_in_transaction_session_timeout = 0

-- name: become_owner
SET LOCAL ROLE slumberd_owner

-- name: become_login
RESET ROLE

-- name: first_filled
SELECT name
FROM (
  VALUES
    ('episodes', EXISTS (SELECT 1 FROM slumberd.episodes WHERE shard = :shard)),
    ('episode_log', EXISTS (SELECT 1 FROM slumberd.episode_log WHERE shard = :shard)),
    ('episode_deletions', EXISTS (SELECT 1 FROM slumberd.episode_deletions WHERE shard = :shard)),
    ('accesses', EXISTS (SELECT 1 FROM slumberd.accesses WHERE shard = :shard)),
    ('extractions', EXISTS (SELECT 1 FROM slumberd.extractions WHERE shard = :shard)),
    ('model_summaries', EXISTS (SELECT 1 FROM slumberd.model_summaries WHERE shard = :shard)),
    ('model_requests', EXISTS (SELECT 1 FROM slumberd.model_requests WHERE shard = :shard)),
    ('model_usage', EXISTS (SELECT 1 FROM slumberd.model_usage WHERE shard = :shard)),
    ('facts', EXISTS (SELECT 1 FROM slumberd.facts WHERE shard = :shard)),
    ('keys', EXISTS (SELECT 1 FROM slumberd.keys WHERE shard = :shard)),
    ('firings', EXISTS (SELECT 1 FROM slumberd.firings WHERE shard = :shard)),
    ('ledger', EXISTS (SELECT 1 FROM slumberd.ledger WHERE shard = :shard)),
    ('claim_references', EXISTS (SELECT 1 FROM slumberd.claim_references WHERE shard = :shard)),
    ('watermark', EXISTS (SELECT 1 FROM slumberd.watermark WHERE shard = :shard)),
    ('successes', EXISTS (SELECT 1 FROM slumberd.successes WHERE shard = :shard)),
    ('quarantine', EXISTS (SELECT 1 FROM slumberd.quarantine WHERE shard = :shard)),
    ('channels', EXISTS (SELECT 1 FROM slumberd.channels WHERE shard = :shard)),
    ('generations', EXISTS (SELECT 1 FROM slumberd.generations WHERE shard = :shard)),
    ('held_batches', EXISTS (SELECT 1 FROM slumberd.held_batches WHERE shard = :shard)),
    ('unfinished_erasures', EXISTS (SELECT 1 FROM slumberd.unfinished_erasures WHERE shard = :shard)),
    ('inbox', EXISTS (SELECT 1 FROM slumberd.inbox WHERE shard = :shard)),
    ('erased_scopes', EXISTS (SELECT 1 FROM slumberd.erasure_key))
) AS tables(name, is_filled)
WHERE is_filled
LIMIT 1
