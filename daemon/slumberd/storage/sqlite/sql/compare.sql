-- name: attach
ATTACH DATABASE ? AS live

-- name: sort_on_disk
PRAGMA temp_store = FILE

-- name: in_memory_journal
PRAGMA journal_mode = MEMORY

-- name: no_sync
PRAGMA synchronous = OFF

-- name: create_facts_before
CREATE TABLE facts_before (
  fact_id TEXT PRIMARY KEY,
  user TEXT,
  agent TEXT,
  payload BLOB,
  confidence REAL,
  lineage BLOB
)

-- name: copy_facts
INSERT INTO facts_before (fact_id, user, agent, payload, confidence, lineage)
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

-- name: put_removed
INSERT INTO sides (side, fact_id, user, agent, payload, confidence)
SELECT '-', old.fact_id, old.user, old.agent, old.payload, old.confidence
FROM facts_before AS old
WHERE NOT EXISTS (
    SELECT 1
    FROM live.facts AS new
    WHERE new.fact_id = old.fact_id
  )

-- name: put_added
INSERT INTO sides (side, fact_id, user, agent, payload, confidence)
SELECT '+', new.fact_id, new.user, new.agent, new.payload, new.confidence
FROM live.facts AS new
WHERE new.fact_id IS NOT NULL
  AND NOT EXISTS (
    SELECT 1
    FROM facts_before AS old
    WHERE old.fact_id = new.fact_id
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
  removed INTEGER PRIMARY KEY,
  added INTEGER NOT NULL UNIQUE
)

-- name: put_pairs
INSERT INTO pairs (removed, added)
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
    AND id NOT IN (SELECT removed FROM pairs)
  UNION ALL
  SELECT '+', user, agent, subject, predicate, NULL, NULL, NULL, fact_id, payload, confidence
  FROM sides
  WHERE side = '+'
    AND id NOT IN (SELECT added FROM pairs)
  UNION ALL
  SELECT '~', added.user, added.agent, added.subject, added.predicate,
    removed.fact_id, removed.payload, removed.confidence,
    added.fact_id, added.payload, added.confidence
  FROM pairs
  CROSS JOIN sides AS removed ON removed.id = pairs.removed
  CROSS JOIN sides AS added ON added.id = pairs.added
)
WHERE :user IS NULL
  OR user = :user
ORDER BY user, agent, subject, predicate, sign, coalesce(new_id, old_id)

-- name: put_other_contents
INSERT INTO differences
  (sign, user, agent, old_id, old_payload, old_confidence, new_id, new_payload, new_confidence)
SELECT '~', new.user, new.agent, old.fact_id, old.payload, old.confidence,
  new.fact_id, new.payload, new.confidence
FROM facts_before AS old
CROSS JOIN live.facts AS new ON new.fact_id = old.fact_id
WHERE (
    new.payload IS NOT old.payload
    OR new.confidence IS NOT old.confidence
    OR new.user IS NOT old.user
    OR new.agent IS NOT old.agent
  )
  AND (:user IS NULL OR new.user = :user OR old.user = :user)

-- name: put_other_support
INSERT INTO differences (sign, user, agent, old_id, old_rules, new_id, new_rules)
SELECT '=', user, agent, fact_id, old_rules, fact_id, new_rules
FROM (
  SELECT new.user, new.agent, new.fact_id,
    (
      SELECT json_group_array(json_extract(value, '$.rule_id'))
      FROM json_each(
        CASE WHEN json_valid(CAST(old.lineage AS TEXT)) THEN CAST(old.lineage AS TEXT) END
      )
      WHERE CASE type WHEN 'object' THEN json_type(value, '$.rule_id') END = 'text'
    ) AS old_rules,
    (
      SELECT json_group_array(json_extract(value, '$.rule_id'))
      FROM json_each(
        CASE WHEN json_valid(CAST(new.lineage AS TEXT)) THEN CAST(new.lineage AS TEXT) END
      )
      WHERE CASE type WHEN 'object' THEN json_type(value, '$.rule_id') END = 'text'
    ) AS new_rules
  FROM facts_before AS old
  CROSS JOIN live.facts AS new ON new.fact_id = old.fact_id
  WHERE new.lineage IS NOT old.lineage
    AND new.payload IS old.payload
    AND new.confidence IS old.confidence
    AND new.user IS old.user
    AND new.agent IS old.agent
    AND (:user IS NULL OR new.user = :user)
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

-- name: count_facts_by_rule
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
