-- name: unlogged
SELECT greatest(0, coalesce(max(seq), 0) - (
  SELECT value
  FROM slumberd_numbers
  WHERE name = 'logged'
))
FROM slumberd_ledger

-- name: disagreements
SELECT declared.winner_fact, other.winner_fact
FROM slumberd_keys AS declared
INNER JOIN slumberd_keys AS other
  ON other.digest = declared.digest
  AND other.slot = ''
WHERE declared.slot > '@'
  AND declared.slot < 'A'
  AND other.winner_object IS DISTINCT FROM declared.winner_object
  AND EXISTS (
    SELECT 1 FROM facts WHERE fact_id = declared.winner_fact
  )
  AND EXISTS (SELECT 1 FROM facts WHERE fact_id = other.winner_fact)
ORDER BY declared.key, declared.slot
LIMIT :limit

-- name: unresolved
SELECT claims.fact_id
FROM slumberd_ledger AS claims
WHERE claims.reason = 'unresolved'
  AND claims.what = 1
  AND claims.fact_id IS NOT NULL
  -- A sentence may take back what was never said, as "I quit smoking" does.
  AND (
    as_jsonb(claims.payload) -> 'clears' IS NULL
    OR as_jsonb(claims.payload) -> 'payload' -> 'extracted' IS NULL
  )
  AND NOT EXISTS (
    SELECT 1
    FROM slumberd_ledger AS later
    WHERE later.fact_id = claims.fact_id
      AND later.seq > claims.seq
  )
  AND NOT EXISTS (
    SELECT 1
    FROM jsonb_array_elements_text(as_jsonb(claims.payload) -> 'names') AS named(value)
    INNER JOIN slumberd_ledger AS later ON later.fact_id = named.value
    WHERE later.seq > claims.seq
      AND later.reason = 'retracted'
  )
ORDER BY claims.seq
LIMIT :limit

-- name: future
SELECT id, scope_key, content, timestamp, metadata
FROM episodes
WHERE timestamp > :latest

-- name: count_unnumbered
SELECT count(*)
FROM (
  SELECT 1
  FROM inbox
  LIMIT :limit
) AS waiting

-- name: oldest_unnumbered
SELECT (
  SELECT episodes.timestamp
  FROM inbox
  INNER JOIN episodes ON episodes.rid = inbox.rid
  ORDER BY inbox.n
  LIMIT 1
)

-- name: count_episodes
SELECT count(*)
FROM episodes

-- name: count_facts
SELECT count(*)
FROM facts

-- name: users_of_facts
SELECT DISTINCT "user"
FROM facts
ORDER BY "user"
LIMIT :limit

-- name: users_of_episodes
SELECT DISTINCT split_part(scope_key, '/', 3)
FROM episodes
ORDER BY 1
LIMIT :limit

-- name: any_fact_of_user
SELECT EXISTS (
  SELECT 1
  FROM facts
  WHERE short("user") = short(:user)
    AND "user" = :user
)

-- name: size_of_episodes
SELECT coalesce(sum(pg_total_relation_size(tables.oid)), 0)::bigint
FROM pg_class AS tables
WHERE tables.relnamespace = (SELECT relnamespace FROM pg_class WHERE oid = 'episodes'::regclass)
  AND tables.relkind = 'r'
  AND tables.relname ~ '^(episode|inbox|slumberd_(episode|access|extract|model_))'

-- name: size_of_facts
SELECT coalesce(sum(pg_total_relation_size(tables.oid)), 0)::bigint
FROM pg_class AS tables
WHERE tables.relnamespace = (SELECT relnamespace FROM pg_class WHERE oid = 'episodes'::regclass)
  AND tables.relkind = 'r'
  AND tables.relname ~ '^(facts|slumberd_(keys|ledger|firings|references|quarantine))'

-- part: changes
-- A deletion may have an id of its own; all facts that it removes are of one channel.
  SELECT firing, kind, payload,
    CASE kind WHEN 3 THEN as_jsonb(convert_to(replaces, 'UTF8')) ->> 0 ELSE fact_id END AS fact_id,
    coalesce(jsonb_array_length(as_jsonb(convert_to(replaces, 'UTF8'))), 0) AS removed
  FROM slumberd_ledger
  WHERE seq >= :first
    AND kind IN (1, 2, 3)

-- name: any_loss
SELECT EXISTS (
  SELECT 1
  FROM (
  -- include: changes
  ) AS changes
  WHERE (kind = 3 OR removed > 1)
    AND
    -- include: is_no_stage_fact
) OR EXISTS (
  SELECT 1
  FROM slumberd_ledger
  WHERE seq >= :first
    AND what = 0
    AND position('"removed":'::bytea IN payload) > 0
)

-- name: changes_by_user
-- The row of a restored fact does not say whose it is; that of its claim does.
SELECT changes.firing, changes.document #>> '{payload,user}', changes.document ->> 'owner',
  CASE WHEN changes.document IS NULL THEN coalesce(facts."user", (
    SELECT as_jsonb(claims.payload) #>> '{payload,user}'
    FROM slumberd_ledger AS claims
    WHERE claims.fact_id = changes.fact_id
      AND as_jsonb(claims.payload) #>> '{payload,user}' IS NOT NULL
    ORDER BY claims.seq
    LIMIT 1
  )) END,
  sum(CASE WHEN changes.kind != 3 THEN 1 ELSE 0 END)::bigint, sum(changes.removed)::bigint
FROM (
  SELECT firing, kind, fact_id, removed, as_jsonb(payload) AS document
  FROM (
  -- include: changes
  ) AS rows
  WHERE
    -- include: is_no_stage_fact
) AS changes
LEFT JOIN facts
  ON changes.document IS NULL
  AND facts.fact_id = changes.fact_id
GROUP BY 1, 2, 3, 4

-- name: erasures_since
SELECT seq, payload
FROM slumberd_ledger
WHERE seq >= :first
  AND what = 0
  AND position('"removed":'::bytea IN payload) > 0

-- name: has_table
SELECT to_regclass(:name) IS NOT NULL
