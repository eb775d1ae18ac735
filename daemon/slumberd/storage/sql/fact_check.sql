-- name: claims_by_key
SELECT ledger.fact_id, ledger.seq, firings.rule, ledger.version, ledger.what, ledger.at,
  ledger.payload, firings.at, ledger.firing, ledger.key_id
FROM slumberd_ledger AS ledger
INNER JOIN slumberd_firings AS firings ON firings.n = ledger.firing
WHERE ledger.key_id BETWEEN :first AND :last
  AND ledger.what = 1
  AND ledger.fact_id IS NOT NULL
ORDER BY ledger.key_id, ledger.seq

-- name: count_keyed_rows
SELECT count(*)
FROM slumberd_ledger
WHERE key_id IS NOT NULL

-- name: key_at
SELECT key_id
FROM slumberd_ledger
WHERE key_id IS NOT NULL
ORDER BY key_id
LIMIT 1 OFFSET :place

-- name: facts_of
-- texts: escaped
SELECT facts.fact_id, facts."user", facts.agent, facts.payload, facts.lineage, facts.confidence,
  facts.metadata, facts.pinned_at
-- include: from_ids
INNER JOIN facts ON facts.fact_id = wanted.value

-- name: count_summaries
SELECT count(*)
FROM slumberd_keys
WHERE winner_at IS NOT NULL
  OR retractions IS NOT NULL

-- name: all_facts
-- texts: escaped
SELECT fact_id, "user", agent, payload, lineage, confidence, metadata, pinned_at
FROM facts
ORDER BY fact_id
