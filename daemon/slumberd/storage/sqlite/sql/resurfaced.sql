-- name: facts
SELECT facts.user, facts.agent, max(acts.at), json_extract(CAST(acts.payload AS TEXT), '$.session')
FROM facts
CROSS JOIN slumberd_ledger AS acts ON acts.fact_id = facts.fact_id
WHERE acts.what = 1
GROUP BY facts.fact_id

-- name: scope_keys
SELECT DISTINCT scope_key
FROM episodes

-- name: timestamps
SELECT timestamp
FROM episodes
WHERE scope_key = ?
