-- name: attach
ATTACH DATABASE ? AS live

-- name: drop_facts_owner
DROP INDEX main.slumberd_facts_owner

-- name: drop_facts_subject_predicate
DROP INDEX main.slumberd_facts_sp

-- name: drop_facts_object
DROP INDEX main.slumberd_facts_object

-- name: drop_ledger_key
DROP INDEX main.slumberd_ledger_key

-- name: drop_ledger_fact
DROP INDEX main.slumberd_ledger_fact

-- name: detach
DETACH DATABASE live

-- name: in_memory_journal
PRAGMA journal_mode = MEMORY

-- name: no_sync
PRAGMA synchronous = OFF

-- name: wal_journal
PRAGMA journal_mode = WAL

-- name: copy_ledger
INSERT INTO main.slumberd_ledger
  (seq, delta, firing, what, kind, reason, version, key_id, at, fact_id, replaces, salt,
   payload, commitment, chain)
SELECT seq, delta, firing, what, kind, reason, version, key_id, at, fact_id, replaces, salt,
  payload, commitment, chain
FROM live.slumberd_ledger
ORDER BY seq

-- name: copy_firings
INSERT INTO main.slumberd_firings
  (n, rule, rule_hash, cause, at, last_seq, generation, upto_seq, upto_eid, counts)
SELECT n, rule, rule_hash, cause, at, last_seq, generation, upto_seq, upto_eid, counts
FROM live.slumberd_firings
ORDER BY n

-- name: copy_channels
INSERT INTO main.slumberd_channels (seq, multi_valued)
SELECT seq, multi_valued
FROM live.slumberd_channels

-- name: copy_watermark
INSERT INTO main.slumberd_watermark (rule, seq, eid, served)
SELECT rule, seq, eid, served
FROM live.slumberd_watermark

-- name: copy_quarantine
INSERT INTO main.slumberd_quarantine
  (rule, channel, eid, version, owner, reason, detail, seq)
SELECT rule, channel, eid, version, owner, reason, detail, seq
FROM live.slumberd_quarantine

-- name: copy_generations
INSERT INTO main.slumberd_generations (generation, after)
SELECT generation, after
FROM live.slumberd_generations

-- name: copy_held_batches
INSERT INTO main.slumberd_held_batches (rule, n, upto_seq, upto_eid, problem, approved)
SELECT rule, n, upto_seq, upto_eid, problem, approved
FROM live.slumberd_held_batches

-- name: copy_unfinished_erasures
INSERT INTO main.slumberd_unfinished_erasures (scope, eids, moment, by)
SELECT scope, eids, moment, by
FROM live.slumberd_unfinished_erasures

-- name: copy_references
INSERT INTO main.slumberd_references (referenced, referrer)
SELECT referenced, referrer
FROM live.slumberd_references

-- name: live_has_erased_scopes
SELECT 1
FROM live.sqlite_master
WHERE name = 'slumberd_erased_scopes'

-- name: copy_successes
INSERT INTO main.slumberd_successes (rule, at)
SELECT rule, at
FROM live.slumberd_successes

-- name: keep_erasure_key
INSERT INTO main.slumberd_erasure_key (id, key)
SELECT id, key
FROM live.slumberd_erasure_key

-- name: keep_erased_scopes
INSERT INTO main.slumberd_erased_scopes (digest, moment)
SELECT digest, moment
FROM live.slumberd_erased_scopes

-- name: copy_numbers
INSERT OR REPLACE INTO main.slumberd_numbers (name, value)
SELECT name, value
FROM live.slumberd_numbers

-- name: changing_firings
SELECT firings.n, firings.at, firings.rule, own.payload
FROM main.slumberd_firings AS firings
CROSS JOIN main.slumberd_ledger AS own ON own.seq = firings.n
WHERE instr(own.payload, CAST('"forgets":' AS BLOB)) > 0
  OR instr(own.payload, CAST('"multi_valued":' AS BLOB)) > 0
  OR firings.rule = '@law'
ORDER BY firings.n

-- name: count_rows
SELECT count(*)
FROM main.slumberd_ledger

-- name: count_erased
SELECT count(*)
FROM main.slumberd_ledger
WHERE salt IS NULL

-- name: count_firings
SELECT count(*)
FROM main.slumberd_firings

-- name: add_fact
INSERT INTO main.facts
  (fact_id, user, agent, payload, lineage, confidence, metadata, pinned_at)
VALUES (?, ?, ?, ?, ?, ?, ?, ?)

-- name: add_state
INSERT INTO main.slumberd_keys
  (key, slot, key_id, winner_at, winner_rank, winner_id, winner_part, winner_fact,
   winner_object, retractions, replaced)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)

-- name: count_facts
SELECT count(*)
FROM main.facts

-- name: count_live_facts
SELECT count(*)
FROM live.facts

-- name: changed_facts
SELECT stored.fact_id, again.fact_id IS NULL
FROM live.facts AS stored
LEFT JOIN main.facts AS again ON again.fact_id = stored.fact_id
WHERE (again.fact_id, again.user, again.agent, again.payload, again.lineage, again.confidence,
    again.metadata, again.pinned_at)
  IS NOT (stored.fact_id, stored.user, stored.agent, stored.payload, stored.lineage,
    stored.confidence, stored.metadata, stored.pinned_at)

-- name: lost_facts
SELECT again.fact_id
FROM main.facts AS again
LEFT JOIN live.facts AS stored ON stored.fact_id = again.fact_id
WHERE stored.fact_id IS NULL

-- name: facts_of_other_programs
SELECT fact_id
FROM live.slumberd_external_changes
UNION
SELECT eid
FROM live.slumberd_quarantine
WHERE rule = :rule
  AND reason = :reason

-- name: count_winners
SELECT count(winner_at)
FROM main.slumberd_keys

-- name: count_live_winners
SELECT count(winner_at)
FROM live.slumberd_keys

-- name: changed_keys
SELECT again.key_id
FROM main.slumberd_keys AS again
LEFT JOIN live.slumberd_keys AS stored ON stored.key = again.key AND stored.slot = again.slot
WHERE again.winner_at IS NOT NULL
  AND (again.key_id, again.winner_at, again.winner_rank, again.winner_id, again.winner_part,
    again.winner_fact, again.winner_object, again.replaced)
  IS NOT (stored.key_id, stored.winner_at, stored.winner_rank, stored.winner_id, stored.winner_part,
    stored.winner_fact, stored.winner_object, stored.replaced)

-- name: surplus_keys
SELECT stored.key_id
FROM live.slumberd_keys AS stored
LEFT JOIN main.slumberd_keys AS again ON again.key = stored.key AND again.slot = stored.slot
WHERE stored.winner_at IS NOT NULL
  AND again.winner_at IS NULL
