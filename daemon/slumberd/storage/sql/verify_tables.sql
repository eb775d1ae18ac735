-- name: watermarks
-- texts: escaped
SELECT mark.rule, mark.seq,
  (
    SELECT upto_seq
    FROM slumberd_firings AS firings
    WHERE firings.rule = mark.rule
    ORDER BY n DESC
    LIMIT 1
  )
FROM slumberd_watermark AS mark
ORDER BY mark.rule

-- name: generations
-- texts: escaped
SELECT generation, after
FROM slumberd_generations
ORDER BY generation DESC

-- name: highest_generation
-- texts: escaped
SELECT max(generation)
FROM slumberd_firings

-- name: versions
-- texts: escaped
SELECT ledger.seq, ledger.version, firings.generation
FROM slumberd_ledger AS ledger
INNER JOIN slumberd_firings AS firings ON firings.n = ledger.firing
WHERE ledger.version != 0
  AND substr(firings.rule, 1, 1) != '@'
ORDER BY ledger.seq

-- name: held_batches
-- texts: escaped
SELECT held.rule, held.n, held.upto_seq, held.problem, held.approved, firings.rule, own.payload
FROM slumberd_held_batches AS held
LEFT JOIN slumberd_firings AS firings ON firings.n = held.n
LEFT JOIN slumberd_ledger AS own ON own.seq = held.n
ORDER BY held.rule

-- name: quarantine
-- texts: escaped
SELECT held.rule, held.channel, held.eid, held.version, held.owner, held.reason, held.detail,
  held.seq, ledger.what, firings.rule, ledger.version, ledger.reason, ledger.payload
FROM slumberd_quarantine AS held
LEFT JOIN slumberd_ledger AS ledger ON ledger.seq = held.seq
LEFT JOIN slumberd_firings AS firings ON firings.n = ledger.firing
ORDER BY held.seq

-- name: quarantined_ids
-- texts: escaped
SELECT rule, channel, eid
FROM slumberd_quarantine

-- name: quarantine_rows
-- texts: escaped
SELECT ledger.seq, ledger.firing, firings.rule, ledger.payload
FROM slumberd_ledger AS ledger
INNER JOIN slumberd_firings AS firings ON firings.n = ledger.firing
WHERE ledger.what = 3
  AND ledger.payload IS NOT NULL
  AND firings.rule != '@undo'
ORDER BY ledger.seq

-- name: quarantine_removals
-- texts: escaped
SELECT own.payload
FROM slumberd_firings AS firings
INNER JOIN slumberd_ledger AS own ON own.seq = firings.n
WHERE firings.rule IN ('@quarantine', '@undo')
