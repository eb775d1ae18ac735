-- name: facts
SELECT facts."user", facts.agent, max(claims.at),
  max(as_jsonb(claims.payload) ->> 'session'), facts.fact_id
FROM facts
INNER JOIN slumberd_ledger AS claims
  ON claims.fact_id = facts.fact_id
WHERE claims.what = 1
GROUP BY facts.fact_id
