-- name: facts
SELECT facts."user", facts.agent, max(claims.at),
  max(slumberd.as_jsonb(claims.payload) ->> 'session'), facts.fact_id
FROM slumberd.facts
INNER JOIN slumberd.ledger AS claims
  ON facts.shard = :shard
  AND claims.shard = :shard
  AND claims.fact_id = facts.fact_id
WHERE claims.what = 1
GROUP BY facts.shard, facts.fact_id

-- name: ids
SELECT id, scope_key
FROM slumberd.episodes
WHERE shard = :shard

-- name: scope_keys
SELECT DISTINCT scope_key
FROM slumberd.episodes
WHERE shard = :shard

-- name: timestamps
SELECT timestamp
FROM slumberd.episodes
WHERE shard = :shard
  AND scope_key = ?
