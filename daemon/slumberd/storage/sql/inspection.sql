-- name: quarantined
SELECT rule, reason, count(DISTINCT eid)
FROM slumberd_quarantine
GROUP BY rule, reason

-- name: last_recorded
SELECT at
FROM slumberd_firings
ORDER BY n DESC
LIMIT 1

-- name: latest_claim
SELECT max(winner_at)
FROM slumberd_keys

-- name: last_firings
WITH RECURSIVE rules(rule) AS (
  SELECT min(rule)
  FROM slumberd_firings
  UNION ALL
  SELECT (SELECT min(firings.rule) FROM slumberd_firings AS firings WHERE firings.rule > rules.rule)
  FROM rules
  WHERE rule IS NOT NULL
)
SELECT firings.rule, firings.n,
  -- include: recorded_at
  AS recorded_at, firings.counts
FROM rules
INNER JOIN slumberd_firings AS firings
  ON firings.n = (
    SELECT max(last.n)
    FROM slumberd_firings AS last
    WHERE last.rule = rules.rule
      AND last.generation >= 0
  )

-- name: erasures
SELECT count(*)
FROM slumberd_firings
WHERE rule = '@erasure'
  AND last_seq > :after

-- name: first_firing_since
SELECT n
FROM slumberd_firings
WHERE at >= :since
  AND generation >= 0
ORDER BY n
LIMIT 1

-- name: facts_by_user
SELECT "user", count(*)
FROM facts
WHERE
  -- include: is_no_stage_fact
GROUP BY "user"
