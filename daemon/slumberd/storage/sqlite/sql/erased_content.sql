-- name: facts
SELECT facts.user, facts.agent, max(claims.at), json_extract(CAST(claims.payload AS TEXT), '$.session'), facts.fact_id
FROM facts
CROSS JOIN slumberd_ledger AS claims ON claims.fact_id = facts.fact_id
WHERE claims.what = 1
GROUP BY facts.fact_id

-- name: ids
-- texts: lenient
SELECT id, scope_key
FROM episodes

-- name: scope_keys
-- texts: lenient
SELECT DISTINCT scope_key
FROM episodes

-- name: timestamps
-- texts: lenient
SELECT timestamp
FROM episodes
WHERE scope_key = ?
