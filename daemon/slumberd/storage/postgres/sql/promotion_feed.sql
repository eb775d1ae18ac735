-- name: end_of_page
SELECT max(seq)
FROM (
  SELECT seq
  FROM slumberd.ledger
  WHERE shard = :shard
    AND seq > :after
  ORDER BY seq
  LIMIT :limit
) AS page

-- name: promotions
SELECT ledger.seq, ledger.delta, ledger.firing, ledger.what, ledger.kind, ledger.reason,
  ledger.version, ledger.key_id, ledger.at, ledger.fact_id, ledger.replaces, ledger.payload,
  firings.rule, firings.rule_hash, firings.cause, firings.at
FROM slumberd.ledger AS ledger
INNER JOIN slumberd.firings AS firings
  ON ledger.shard = :shard
  AND firings.shard = :shard
  AND firings.n = ledger.firing
WHERE ledger.seq > :after
  AND ledger.seq <= :upto
  AND ledger.kind IN (1, 2)
  AND ledger.fact_id IS NOT NULL
ORDER BY ledger.seq

-- name: promotions_of_current_facts
SELECT ledger.seq, ledger.delta, ledger.firing, ledger.what, ledger.kind, ledger.reason,
  ledger.version, ledger.key_id, ledger.at, ledger.fact_id, ledger.replaces, ledger.payload,
  firings.rule, firings.rule_hash, firings.cause, firings.at
FROM slumberd.ledger AS ledger
INNER JOIN slumberd.firings AS firings
  ON ledger.shard = :shard
  AND firings.shard = :shard
  AND firings.n = ledger.firing
WHERE ledger.seq > :after
  AND ledger.seq <= :upto
  AND ledger.kind IN (1, 2)
  AND EXISTS (
    SELECT 1
    FROM slumberd.facts
    WHERE shard = :shard
      AND facts.fact_id = ledger.fact_id
  )
ORDER BY ledger.seq

-- name: has_content
SELECT 1
FROM slumberd.ledger
WHERE shard = :shard
  AND seq = :seq
  AND salt IS NOT NULL

-- name: put_number
INSERT INTO slumberd.numbers (shard, name, value)
VALUES (:shard, :name, :value)
ON CONFLICT (shard, name) DO UPDATE SET
  value = excluded.value

-- name: sinks
SELECT substr(name, 10)
FROM slumberd.numbers
WHERE shard = :shard
  AND name LIKE 'asserted:%'
ORDER BY name

-- name: lag
SELECT coalesce((SELECT max(seq) FROM slumberd.ledger WHERE shard = :shard), 0) - :after, (
    SELECT least(firings.at, (
      SELECT min(clock.at)
      FROM slumberd.firings AS clock
      WHERE clock.shard = :shard
        AND clock.rule = '@clock'
        AND clock.n > firings.n
    ))
    FROM slumberd.ledger AS ledger
    INNER JOIN slumberd.firings AS firings
      ON ledger.shard = :shard
      AND firings.shard = :shard
      AND firings.n = ledger.firing
    WHERE ledger.seq > :after
    ORDER BY ledger.seq
    LIMIT 1
  )
