-- name: triggers
SELECT name, sql
FROM sqlite_master
WHERE type = 'trigger'
  AND tbl_name = :table

-- name: unlogged
SELECT max(0, ifnull(max(seq), 0) - (SELECT value FROM slumberd_numbers WHERE name = 'logged'))
FROM slumberd_ledger

-- name: disagreements
SELECT declared.winner_fact, other.winner_fact
FROM slumberd_keys AS declared
CROSS JOIN slumberd_keys AS other ON other.key = declared.key AND other.slot = ''
WHERE declared.slot > '@'
  AND declared.slot < 'A'
  AND other.winner_object IS NOT declared.winner_object
  AND EXISTS (SELECT 1 FROM facts WHERE fact_id = declared.winner_fact)
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
    json_extract(CAST(claims.payload AS TEXT), '$.clears') IS NULL
    OR json_extract(CAST(claims.payload AS TEXT), '$.payload.extracted') IS NULL
  )
  AND NOT EXISTS (
    SELECT 1
    FROM slumberd_ledger AS later
    WHERE later.fact_id = claims.fact_id
      AND later.seq > claims.seq
  )
  AND NOT EXISTS (
    SELECT 1
    FROM json_each(CAST(claims.payload AS TEXT), '$.names') AS named
    CROSS JOIN slumberd_ledger AS later ON later.fact_id = named.value
    WHERE later.seq > claims.seq
      AND later.reason = 'retracted'
  )
ORDER BY claims.seq
LIMIT :limit

-- name: future
SELECT id, scope_key, content, timestamp, metadata
FROM episodes INDEXED BY idx_episodes_scope_ts
WHERE typeof(timestamp) = 'text'
  AND timestamp > :floor
  AND CASE
    WHEN substr(timestamp, -6) = '+00:00' THEN timestamp > :latest
    ELSE ifnull(julianday(timestamp) > julianday(:latest) - 0.6, 1)
  END

-- name: origin_of_slumberd_ledger
SELECT chain
FROM slumberd_ledger
WHERE seq = 1

-- name: origin_of_slumberd_episode_log
SELECT CAST(eid AS BLOB)
FROM slumberd_episode_log
ORDER BY seq
LIMIT 1

-- name: users_of_facts
WITH RECURSIVE users(user) AS (
  SELECT min(user)
  FROM facts
  UNION ALL
  SELECT (SELECT min(facts.user) FROM facts WHERE facts.user > users.user)
  FROM users
  WHERE users.user IS NOT NULL
)
SELECT user
FROM users
WHERE typeof(user) = 'text'
LIMIT :limit

-- part: is_key_of_scope
place GLOB '/user/*/session/*/agent/*/'
AND length(place) - length(replace(place, '/', '')) = 7

-- name: users_of_episodes
-- A step skips all keys of a user: 0 follows the slash.
WITH RECURSIVE keys(place) AS (
  SELECT min(scope_key)
  FROM episodes
  UNION ALL
  SELECT (
    SELECT min(scope_key)
    FROM episodes
    WHERE scope_key > CASE
      WHEN
        -- include: is_key_of_scope
      THEN substr(place, 1, 5 + instr(substr(place, 7), '/')) || '0'
      ELSE place
    END
  )
  FROM keys
  WHERE typeof(place) = 'text'
)
SELECT substr(place, 7, instr(substr(place, 7), '/') - 1)
FROM keys
WHERE typeof(place) = 'text'
  AND
  -- include: is_key_of_scope
LIMIT :limit

-- name: any_fact_of_user
SELECT EXISTS (
  SELECT 1
  FROM facts
  WHERE user = :user
)

-- name: kind_of_facts
SELECT type
FROM sqlite_master
WHERE name = 'facts' COLLATE NOCASE

-- part: changes
-- A deletion may have an id of its own; all facts that it removes are of one channel.
  SELECT firing, kind, payload,
    CASE WHEN kind = 3 AND json_valid(replaces) THEN json_extract(replaces, '$[0]')
      ELSE fact_id END AS fact_id,
    CASE WHEN json_valid(replaces) THEN json_array_length(replaces) ELSE 0 END AS removed
  FROM slumberd_ledger
  WHERE seq >= :first
    AND kind IN (1, 2, 3)

-- name: any_loss
SELECT EXISTS (
  SELECT 1
  FROM (
  -- include: changes
  )
  WHERE (kind = 3 OR removed > 1)
    AND
    -- include: is_no_stage_fact
) OR EXISTS (
  SELECT 1
  FROM slumberd_ledger
  WHERE seq >= :first
    AND what = 0
    AND instr(payload, CAST('"removed":' AS BLOB)) > 0
)

-- name: changes_by_user
-- The row of a restored fact does not say whose it is; that of its claim does.
SELECT changes.firing, json_extract(changes.document, '$.payload.user'),
  json_extract(changes.document, '$.owner'),
  CASE WHEN changes.document IS NULL THEN ifnull(facts.user, (
    SELECT json_extract(CAST(claims.payload AS TEXT), '$.payload.user')
    FROM slumberd_ledger AS claims
    WHERE claims.fact_id = changes.fact_id
      AND json_valid(CAST(claims.payload AS TEXT))
      AND json_extract(CAST(claims.payload AS TEXT), '$.payload.user') IS NOT NULL
    ORDER BY claims.seq
    LIMIT 1
  )) END,
  sum(changes.kind != 3), sum(changes.removed)
FROM (
  SELECT firing, kind, fact_id, removed,
    CASE WHEN json_valid(CAST(payload AS TEXT)) THEN CAST(payload AS TEXT) END AS document
  FROM (
  -- include: changes
  )
  WHERE
    -- include: is_no_stage_fact
) AS changes
LEFT JOIN facts ON changes.document IS NULL AND facts.fact_id = changes.fact_id
GROUP BY 1, 2, 3, 4

-- name: erasures_since
SELECT seq, payload
FROM slumberd_ledger
WHERE seq >= :first
  AND what = 0
  AND instr(payload, CAST('"removed":' AS BLOB)) > 0

-- name: count_unnumbered
-- A file numbers each episode as it is put.
SELECT 0

-- name: oldest_unnumbered
SELECT NULL

-- name: has_table
SELECT EXISTS (
  SELECT 1
  FROM sqlite_master
  WHERE type = 'table' AND name = :name COLLATE NOCASE
)

-- name: count_episodes
-- The filter makes the count interruptible: a plain count does not check for an interrupt.
SELECT count(*) FILTER (WHERE 1)
FROM episodes

-- name: count_facts
-- The filter makes the count interruptible: a plain count does not check for an interrupt.
SELECT count(*) FILTER (WHERE 1)
FROM facts
