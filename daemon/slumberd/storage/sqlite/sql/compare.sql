-- name: attach
ATTACH DATABASE ? AS live

-- name: sort_on_disk
PRAGMA temp_store = FILE

-- name: in_memory_journal
PRAGMA journal_mode = MEMORY

-- name: no_sync
PRAGMA synchronous = OFF

-- name: create_kept
CREATE TABLE kept (
  fact_id TEXT PRIMARY KEY,
  user TEXT,
  agent TEXT,
  payload BLOB,
  confidence REAL,
  lineage BLOB
)

-- name: keep
INSERT INTO kept (fact_id, user, agent, payload, confidence, lineage)
SELECT fact_id, user, agent, payload, confidence, lineage
FROM live.facts
WHERE fact_id IS NOT NULL
ORDER BY fact_id

-- name: create_sides
CREATE TABLE sides (
  id INTEGER PRIMARY KEY,
  side TEXT NOT NULL,
  fact_id TEXT NOT NULL,
  user TEXT,
  agent TEXT,
  channel TEXT,
  subject TEXT,
  predicate TEXT,
  payload BLOB,
  confidence REAL
)

-- name: put_gone
INSERT INTO sides (side, fact_id, user, agent, payload, confidence)
SELECT '-', kept.fact_id, kept.user, kept.agent, kept.payload, kept.confidence
FROM kept
WHERE NOT EXISTS (
    SELECT 1
    FROM live.facts AS now
    WHERE now.fact_id = kept.fact_id
  )

-- name: put_come
INSERT INTO sides (side, fact_id, user, agent, payload, confidence)
SELECT '+', now.fact_id, now.user, now.agent, now.payload, now.confidence
FROM live.facts AS now
WHERE now.fact_id IS NOT NULL
  AND NOT EXISTS (
    SELECT 1
    FROM kept
    WHERE kept.fact_id = now.fact_id
  )

-- name: name_channels
UPDATE sides
SET channel = CASE
    WHEN fact_id GLOB '@[^/]*/*' THEN substr(fact_id, 2, instr(fact_id, '/') - 2)
    ELSE 'facts'
  END

-- name: name_triples
UPDATE sides
SET
  subject = json_extract(CAST(payload AS TEXT), '$.subject'),
  predicate = json_extract(CAST(payload AS TEXT), '$.predicate')
WHERE CASE WHEN json_valid(CAST(payload AS TEXT))
    THEN json_type(CAST(payload AS TEXT), '$.subject') = 'text'
      AND json_type(CAST(payload AS TEXT), '$.predicate') = 'text'
  END

-- name: create_pairs
CREATE TABLE pairs (
  gone INTEGER PRIMARY KEY,
  come INTEGER NOT NULL UNIQUE
)

-- name: put_pairs
INSERT INTO pairs (gone, come)
SELECT
  max(CASE side WHEN '-' THEN id END),
  max(CASE side WHEN '+' THEN id END)
FROM sides
WHERE subject != ''
  AND predicate != ''
GROUP BY user, agent, channel, subject, predicate
HAVING sum(side = '-') = 1
  AND sum(side = '+') = 1

-- name: create_differences
CREATE TABLE differences (
  n INTEGER PRIMARY KEY,
  sign TEXT NOT NULL,
  user TEXT,
  agent TEXT,
  old_id TEXT,
  old_payload BLOB,
  old_confidence REAL,
  old_rules TEXT,
  new_id TEXT,
  new_payload BLOB,
  new_confidence REAL,
  new_rules TEXT
)

-- name: put_differences
INSERT INTO differences
  (sign, user, agent, old_id, old_payload, old_confidence, new_id, new_payload, new_confidence)
SELECT sign, user, agent, old_id, old_payload, old_confidence, new_id, new_payload, new_confidence
FROM (
  SELECT '-' AS sign, user, agent, subject, predicate, fact_id AS old_id, payload AS old_payload,
    confidence AS old_confidence, NULL AS new_id, NULL AS new_payload, NULL AS new_confidence
  FROM sides
  WHERE side = '-'
    AND id NOT IN (SELECT gone FROM pairs)
  UNION ALL
  SELECT '+', user, agent, subject, predicate, NULL, NULL, NULL, fact_id, payload, confidence
  FROM sides
  WHERE side = '+'
    AND id NOT IN (SELECT come FROM pairs)
  UNION ALL
  SELECT '~', come.user, come.agent, come.subject, come.predicate,
    gone.fact_id, gone.payload, gone.confidence, come.fact_id, come.payload, come.confidence
  FROM pairs
  CROSS JOIN sides AS gone ON gone.id = pairs.gone
  CROSS JOIN sides AS come ON come.id = pairs.come
)
WHERE :user IS NULL
  OR user = :user
ORDER BY user, agent, subject, predicate, sign, coalesce(new_id, old_id)

-- name: put_other_contents
INSERT INTO differences
  (sign, user, agent, old_id, old_payload, old_confidence, new_id, new_payload, new_confidence)
SELECT '~', now.user, now.agent, kept.fact_id, kept.payload, kept.confidence,
  now.fact_id, now.payload, now.confidence
FROM kept
CROSS JOIN live.facts AS now ON now.fact_id = kept.fact_id
WHERE (
    now.payload IS NOT kept.payload
    OR now.confidence IS NOT kept.confidence
    OR now.user IS NOT kept.user
    OR now.agent IS NOT kept.agent
  )
  AND (:user IS NULL OR now.user = :user OR kept.user = :user)

-- name: put_other_support
INSERT INTO differences (sign, user, agent, old_id, old_rules, new_id, new_rules)
SELECT '=', user, agent, fact_id, old_rules, fact_id, new_rules
FROM (
  SELECT now.user, now.agent, now.fact_id,
    (
      SELECT json_group_array(json_extract(value, '$.rule_id'))
      FROM json_each(
        CASE WHEN json_valid(CAST(kept.lineage AS TEXT)) THEN CAST(kept.lineage AS TEXT) END
      )
      WHERE CASE type WHEN 'object' THEN json_type(value, '$.rule_id') END = 'text'
    ) AS old_rules,
    (
      SELECT json_group_array(json_extract(value, '$.rule_id'))
      FROM json_each(
        CASE WHEN json_valid(CAST(now.lineage AS TEXT)) THEN CAST(now.lineage AS TEXT) END
      )
      WHERE CASE type WHEN 'object' THEN json_type(value, '$.rule_id') END = 'text'
    ) AS new_rules
  FROM kept
  CROSS JOIN live.facts AS now ON now.fact_id = kept.fact_id
  WHERE now.lineage IS NOT kept.lineage
    AND now.payload IS kept.payload
    AND now.confidence IS kept.confidence
    AND now.user IS kept.user
    AND now.agent IS kept.agent
    AND (:user IS NULL OR now.user = :user)
)
WHERE old_rules != new_rules

-- name: count_signs
SELECT sign, count(*)
FROM differences
GROUP BY sign

-- name: count_facts
SELECT count(*)
FROM live.facts
WHERE fact_id IS NOT NULL
  AND (:user IS NULL OR user = :user)

-- name: differences
SELECT n, sign, user, agent, old_id, old_payload, old_confidence, old_rules,
  new_id, new_payload, new_confidence, new_rules
FROM differences
WHERE n > :after
  AND (:support OR sign != '=')
ORDER BY n
LIMIT :limit

-- name: count_resting
SELECT json_extract(rules, '$[0]'), count(*)
FROM (
  SELECT (
      SELECT json_group_array(json_extract(value, '$.rule_id'))
      FROM json_each(
        CASE WHEN json_valid(CAST(lineage AS TEXT)) THEN CAST(lineage AS TEXT) END
      )
      WHERE CASE type WHEN 'object' THEN json_type(value, '$.rule_id') END = 'text'
    ) AS rules
  FROM live.facts
)
WHERE json_array_length(rules) = 1
GROUP BY 1
