-- name: end_of_page
SELECT max(seq)
FROM (
  SELECT seq
  FROM slumberd_ledger
  WHERE seq > :after
  ORDER BY seq
  LIMIT :limit
) AS page

-- name: promotions
SELECT ledger.seq, ledger.delta, ledger.firing, ledger.what, ledger.kind, ledger.reason,
  ledger.version, ledger.key_id, ledger.at, ledger.fact_id, ledger.replaces, ledger.payload,
  firings.rule, firings.rule_hash, firings.cause, firings.at
FROM slumberd_ledger AS ledger
INNER JOIN slumberd_firings AS firings ON firings.n = ledger.firing
WHERE ledger.seq > :after
  AND ledger.seq <= :upto
  AND ledger.kind IN (1, 2)
  AND firings.generation >= 0
  AND ledger.fact_id IS NOT NULL
ORDER BY ledger.seq

-- name: promotions_of_current_facts
SELECT ledger.seq, ledger.delta, ledger.firing, ledger.what, ledger.kind, ledger.reason,
  ledger.version, ledger.key_id, ledger.at, ledger.fact_id, ledger.replaces, ledger.payload,
  firings.rule, firings.rule_hash, firings.cause, firings.at
FROM slumberd_ledger AS ledger
INNER JOIN slumberd_firings AS firings ON firings.n = ledger.firing
WHERE ledger.seq > :after
  AND ledger.seq <= :upto
  AND ledger.kind IN (1, 2)
  AND EXISTS (
    SELECT 1
    FROM facts
    WHERE facts.fact_id = ledger.fact_id
  )
ORDER BY ledger.seq

-- name: has_content
SELECT 1
FROM slumberd_ledger
WHERE seq = :seq
  AND salt IS NOT NULL

-- name: put_number
INSERT INTO slumberd_numbers (name, value)
VALUES (:name, :value)
ON CONFLICT (name) DO UPDATE SET
  value = excluded.value

-- name: sinks
SELECT substr(name, 10)
FROM slumberd_numbers
WHERE substr(name, 1, 9) = 'asserted:'
ORDER BY name

-- name: lag
SELECT coalesce((SELECT max(seq) FROM slumberd_ledger), 0) - :after, (
    SELECT
      -- include: recorded_at
    FROM slumberd_ledger AS ledger
    INNER JOIN slumberd_firings AS firings ON firings.n = ledger.firing
    WHERE ledger.seq > :after
    ORDER BY ledger.seq
    LIMIT 1
  )

-- name: changed_facts
-- texts: none
SELECT ledger.fact_id, ledger.replaces, firings.rule
FROM slumberd_ledger AS ledger
LEFT JOIN slumberd_firings AS firings ON firings.n = ledger.seq
WHERE ledger.seq > :seq
  AND (ledger.fact_id IS NULL OR ledger.fact_id < '@weights/' OR ledger.fact_id >= '@weights0')
ORDER BY ledger.seq
LIMIT :limit
