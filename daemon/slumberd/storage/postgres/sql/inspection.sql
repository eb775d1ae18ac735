-- part: recorded_at
  least(firings.at, (
    SELECT min(clock.at)
    FROM slumberd.firings AS clock
    WHERE clock.shard = :shard
      AND clock.rule = '@clock'
      AND clock.n > firings.n
  ))

-- name: quarantined
SELECT rule, reason, count(DISTINCT eid)
FROM slumberd.quarantine
WHERE shard = :shard
GROUP BY rule, reason

-- name: last_recorded
SELECT at
FROM slumberd.firings
WHERE shard = :shard
ORDER BY n DESC
LIMIT 1

-- name: latest_claim
SELECT max(winner_at)
FROM slumberd.keys
WHERE shard = :shard

-- name: unlogged
SELECT greatest(0, coalesce(max(seq), 0) - (
  SELECT value
  FROM slumberd.numbers
  WHERE shard = :shard
    AND name = 'logged'
))
FROM slumberd.ledger
WHERE shard = :shard

-- name: disagreements
SELECT declared.winner_fact, other.winner_fact
FROM slumberd.keys AS declared
INNER JOIN slumberd.keys AS other
  ON declared.shard = :shard
  AND other.shard = :shard
  AND other.digest = declared.digest
  AND other.slot = ''
WHERE declared.slot > '@'
  AND declared.slot < 'A'
  AND other.winner_object IS DISTINCT FROM declared.winner_object
  AND EXISTS (
    SELECT 1 FROM slumberd.facts WHERE shard = :shard AND fact_id = declared.winner_fact
  )
  AND EXISTS (SELECT 1 FROM slumberd.facts WHERE shard = :shard AND fact_id = other.winner_fact)
ORDER BY declared.key, declared.slot
LIMIT :limit

-- name: unresolved
SELECT claims.fact_id
FROM slumberd.ledger AS claims
WHERE claims.shard = :shard
  AND claims.reason = 'unresolved'
  AND claims.what = 1
  AND claims.fact_id IS NOT NULL
  -- A sentence may take back what was never said, as "I quit smoking" does.
  AND (
    slumberd.as_jsonb(claims.payload) -> 'clears' IS NULL
    OR slumberd.as_jsonb(claims.payload) -> 'payload' -> 'extracted' IS NULL
  )
  AND NOT EXISTS (
    SELECT 1
    FROM slumberd.ledger AS later
    WHERE later.shard = :shard
      AND later.fact_id = claims.fact_id
      AND later.seq > claims.seq
  )
  AND NOT EXISTS (
    SELECT 1
    FROM jsonb_array_elements_text(slumberd.as_jsonb(claims.payload) -> 'names') AS named(value)
    INNER JOIN slumberd.ledger AS later ON later.shard = :shard AND later.fact_id = named.value
    WHERE later.seq > claims.seq
      AND later.reason = 'retracted'
  )
ORDER BY claims.seq
LIMIT :limit

-- name: last_firings
WITH RECURSIVE rules(rule) AS (
  SELECT min(rule)
  FROM slumberd.firings
  WHERE shard = :shard
  UNION ALL
  SELECT (
    SELECT min(firings.rule)
    FROM slumberd.firings
    WHERE shard = :shard AND firings.rule > rules.rule
  )
  FROM rules
  WHERE rule IS NOT NULL
)
SELECT firings.rule, firings.n,
  -- include: recorded_at
  AS recorded_at, firings.counts
FROM rules
INNER JOIN slumberd.firings AS firings
  ON firings.shard = :shard
  AND firings.n = (
    SELECT max(n)
    FROM slumberd.firings
    WHERE shard = :shard AND firings.rule = rules.rule
  )

-- name: future
SELECT id, scope_key, content, timestamp, metadata
FROM slumberd.episodes
WHERE shard = :shard
  AND timestamp > :latest

-- name: count_unnumbered
SELECT count(*)
FROM (
  SELECT 1
  FROM slumberd.inbox
  WHERE shard = :shard
  LIMIT :limit
) AS waiting

-- name: oldest_unnumbered
SELECT (
  SELECT episodes.timestamp
  FROM slumberd.inbox
  INNER JOIN slumberd.episodes ON episodes.shard = :shard AND episodes.rid = inbox.rid
  WHERE inbox.shard = :shard
  ORDER BY inbox.n
  LIMIT 1
)

-- name: count_episodes
SELECT count(*)
FROM slumberd.episodes
WHERE shard = :shard

-- name: count_facts
SELECT count(*)
FROM slumberd.facts
WHERE shard = :shard

-- name: erasures
SELECT count(*)
FROM slumberd.firings
WHERE shard = :shard
  AND rule = '@erasure'
  AND last_seq > :after

-- name: users_of_facts
SELECT DISTINCT "user"
FROM slumberd.facts
WHERE shard = :shard
ORDER BY "user"
LIMIT :limit

-- name: users_of_episodes
SELECT DISTINCT split_part(scope_key, '/', 3)
FROM slumberd.episodes
WHERE shard = :shard
ORDER BY 1
LIMIT :limit

-- name: any_fact_of_user
SELECT EXISTS (
  SELECT 1
  FROM slumberd.facts
  WHERE shard = :shard
    AND slumberd.short("user") = slumberd.short(:user)
    AND "user" = :user
)

-- name: size_of_episodes
SELECT coalesce(sum(pg_total_relation_size(tables.oid)), 0)::bigint
FROM pg_class AS tables
INNER JOIN pg_namespace AS schemas ON schemas.oid = tables.relnamespace
WHERE schemas.nspname = 'slumberd'
  AND tables.relkind = 'r'
  AND tables.relname ~ '^(episode|inbox|accesses|extractions|model_)'

-- name: size_of_facts
SELECT coalesce(sum(pg_total_relation_size(tables.oid)), 0)::bigint
FROM pg_class AS tables
INNER JOIN pg_namespace AS schemas ON schemas.oid = tables.relnamespace
WHERE schemas.nspname = 'slumberd'
  AND tables.relkind = 'r'
  AND tables.relname ~ '^(facts|keys|ledger|firings|claim|quarantine)'

-- name: first_firing_since
SELECT n
FROM slumberd.firings
WHERE shard = :shard
  AND at >= :since
ORDER BY n
LIMIT 1

-- name: facts_by_user
SELECT "user", count(*)
FROM slumberd.facts
WHERE shard = :shard
GROUP BY "user"

-- name: changes_by_user
SELECT changes.firing, changes.document #>> '{payload,user}', changes.document ->> 'owner',
  facts."user",
  sum(CASE WHEN changes.kind != 3 THEN 1 ELSE 0 END)::bigint, sum(changes.removed)::bigint
FROM (
  SELECT firing, kind, fact_id, slumberd.as_jsonb(payload) AS document,
    coalesce(jsonb_array_length(slumberd.as_jsonb(convert_to(replaces, 'UTF8'))), 0) AS removed
  FROM slumberd.ledger
  WHERE shard = :shard
    AND seq >= :first
    AND kind IN (1, 2, 3)
) AS changes
LEFT JOIN slumberd.facts
  ON changes.document IS NULL
  AND facts.shard = :shard
  AND facts.fact_id = changes.fact_id
GROUP BY 1, 2, 3, 4

-- name: erasures_since
SELECT seq, payload
FROM slumberd.ledger
WHERE shard = :shard
  AND seq >= :first
  AND what = 0
  AND position('"removed":'::bytea IN payload) > 0
