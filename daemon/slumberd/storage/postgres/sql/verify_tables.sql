-- name: watermarks
SELECT mark.rule, mark.seq,
  (
    SELECT upto_seq
    FROM slumberd.firings AS firings
    WHERE firings.shard = :shard
      AND firings.rule = mark.rule
    ORDER BY n DESC
    LIMIT 1
  )
FROM slumberd.watermark AS mark
WHERE mark.shard = :shard
ORDER BY mark.rule

-- name: generations
SELECT generation, after
FROM slumberd.generations
WHERE shard = :shard
ORDER BY generation DESC

-- name: highest_generation
SELECT max(generation)
FROM slumberd.firings
WHERE shard = :shard

-- name: versions
SELECT ledger.seq, ledger.version, firings.generation
FROM slumberd.ledger AS ledger
INNER JOIN slumberd.firings AS firings
  ON ledger.shard = :shard
  AND firings.shard = :shard
  AND firings.n = ledger.firing
WHERE ledger.version != 0
  AND substr(firings.rule, 1, 1) != '@'
ORDER BY ledger.seq

-- name: approvals
SELECT payload
FROM slumberd.ledger
WHERE shard = :shard
  AND what = 0
  AND position('"approves":'::bytea IN payload) > 0

-- name: held_batches
SELECT held.rule, held.n, held.upto_seq, held.problem, held.approved, firings.rule, own.payload
FROM slumberd.held_batches AS held
LEFT JOIN slumberd.firings AS firings ON firings.shard = :shard AND firings.n = held.n
LEFT JOIN slumberd.ledger AS own ON own.shard = :shard AND own.seq = held.n
WHERE held.shard = :shard
ORDER BY held.rule

-- name: quarantine
SELECT held.rule, held.channel, held.eid, held.version, held.owner, held.reason, held.detail,
  held.seq, ledger.what, firings.rule, ledger.version, ledger.reason, ledger.payload
FROM slumberd.quarantine AS held
LEFT JOIN slumberd.ledger AS ledger ON ledger.shard = :shard AND ledger.seq = held.seq
LEFT JOIN slumberd.firings AS firings ON firings.shard = :shard AND firings.n = ledger.firing
WHERE held.shard = :shard
ORDER BY held.seq

-- name: quarantined_ids
SELECT rule, channel, eid
FROM slumberd.quarantine
WHERE shard = :shard

-- name: quarantine_rows
SELECT ledger.seq, ledger.firing, firings.rule, ledger.payload
FROM slumberd.ledger AS ledger
INNER JOIN slumberd.firings AS firings
  ON ledger.shard = :shard
  AND firings.shard = :shard
  AND firings.n = ledger.firing
WHERE ledger.what = 3
  AND ledger.payload IS NOT NULL
  AND firings.rule != '@undo'
ORDER BY ledger.seq

-- name: quarantine_removals
SELECT own.payload
FROM slumberd.firings AS firings
INNER JOIN slumberd.ledger AS own
  ON firings.shard = :shard
  AND own.shard = :shard
  AND own.seq = firings.n
WHERE firings.rule IN ('@quarantine', '@undo')

-- name: is_read_later
SELECT 1
FROM slumberd.ledger AS later
INNER JOIN slumberd.firings AS firings
  ON later.shard = :shard
  AND firings.shard = :shard
  AND firings.n = later.firing
WHERE (
    later.fact_id = :fact_id::text
    OR later.fact_id > :fact_id::text || '#' AND later.fact_id < :fact_id::text || '$'
  )
  AND later.firing > (SELECT firing FROM slumberd.ledger WHERE shard = :shard AND seq = :seq)
  AND later.version > 0
  AND later.what NOT IN (3, 4)
  AND firings.rule = :rule
LIMIT 1
