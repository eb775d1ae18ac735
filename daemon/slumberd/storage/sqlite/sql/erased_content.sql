-- name: facts
SELECT facts.user, facts.agent, max(claims.at), json_extract(CAST(claims.payload AS TEXT), '$.session'), facts.fact_id
FROM facts
CROSS JOIN slumberd_ledger AS claims ON claims.fact_id = facts.fact_id
WHERE claims.what = 1
GROUP BY facts.fact_id
