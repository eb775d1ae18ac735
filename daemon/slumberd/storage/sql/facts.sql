-- name: all_facts
-- texts: none
SELECT fact_id, "user", agent, payload, lineage, confidence, pinned_at, metadata
FROM facts
ORDER BY fact_id

-- name: drop_facts
DELETE FROM facts
WHERE fact_id
  -- include: in_ids

-- name: has_fact
SELECT 1
FROM facts
WHERE fact_id = ?

-- name: count_facts
SELECT count(*)
FROM facts

-- name: count_limited_facts
SELECT
  (SELECT count(*) FROM facts)
  - (SELECT count(*) FROM facts WHERE fact_id >= '@marks/' AND fact_id < '@marks0')
  - (SELECT count(*) FROM facts WHERE fact_id >= '@weights/' AND fact_id < '@weights0')

-- name: facts_from_id
-- texts: none
SELECT fact_id, "user", agent, payload, lineage, confidence, pinned_at, metadata
FROM facts
WHERE fact_id >= :low
  AND fact_id < :high
ORDER BY fact_id

-- name: facts_from_id_backwards
-- texts: none
SELECT fact_id, "user", agent, payload, lineage, confidence, pinned_at, metadata
FROM facts
WHERE fact_id >= :low
  AND fact_id < :high
ORDER BY fact_id DESC

-- name: find_facts_of_ids
-- texts: none
SELECT fact_id, "user", agent, payload, lineage, confidence, pinned_at, metadata
FROM facts
WHERE fact_id
  -- include: in_values

-- name: find_facts_of_users_between
-- texts: none
SELECT fact_id, "user", agent, payload, lineage, confidence, pinned_at, metadata
FROM facts
WHERE "user" >= :low
  AND "user" < :high
