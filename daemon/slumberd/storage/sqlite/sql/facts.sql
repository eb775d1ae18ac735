-- name: create_facts
CREATE TABLE IF NOT EXISTS facts (
  fact_id TEXT PRIMARY KEY,
  user TEXT NOT NULL,
  agent TEXT NOT NULL,
  payload BLOB NOT NULL,
  lineage BLOB NOT NULL,
  confidence REAL NOT NULL,
  metadata BLOB NOT NULL,
  pinned_at TEXT NOT NULL
)

-- name: find_facts_of_user
-- texts: none
SELECT fact_id, user, agent, payload, lineage, confidence, pinned_at, metadata
FROM facts
WHERE user = :user

-- name: find_facts_of_user_and_agent
-- texts: none
SELECT fact_id, user, agent, payload, lineage, confidence, pinned_at, metadata
FROM facts
WHERE user = :user
  AND agent = :agent

-- name: find_facts_of_subject
-- texts: none
SELECT fact_id, user, agent, payload, lineage, confidence, pinned_at, metadata
FROM facts
WHERE CASE WHEN json_valid(CAST(payload AS TEXT))
    THEN json_extract(CAST(payload AS TEXT), '$.subject') END = :subject

-- name: find_facts_of_subject_and_predicate
-- texts: none
SELECT fact_id, user, agent, payload, lineage, confidence, pinned_at, metadata
FROM facts
WHERE CASE WHEN json_valid(CAST(payload AS TEXT))
    THEN json_extract(CAST(payload AS TEXT), '$.subject') END = :subject
  AND CASE WHEN json_valid(CAST(payload AS TEXT))
    THEN json_extract(CAST(payload AS TEXT), '$.predicate') END = :predicate

-- name: find_facts_of_object
-- texts: none
SELECT fact_id, user, agent, payload, lineage, confidence, pinned_at, metadata
FROM facts
WHERE CASE WHEN json_valid(CAST(payload AS TEXT))
    THEN json_extract(CAST(payload AS TEXT), '$.object') END = :object

-- name: put_fact
INSERT INTO facts (fact_id, user, agent, payload, lineage, confidence, metadata, pinned_at)
VALUES (?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (fact_id) DO UPDATE SET
  user = excluded.user,
  agent = excluded.agent,
  payload = excluded.payload,
  lineage = excluded.lineage,
  confidence = excluded.confidence,
  metadata = excluded.metadata,
  pinned_at = excluded.pinned_at

-- name: cited_episodes
-- Marks stay for good, so most facts may be marks: the index of ids leaves them out.
-- The last span has no end, since a blob follows each text.
WITH spans (low, high) AS (
  VALUES ('', '@marks/'), ('@marks0', '@weights/'), ('@weights0', x'')
)
SELECT DISTINCT source.value
FROM spans
CROSS JOIN facts ON facts.fact_id >= spans.low
  AND facts.fact_id < spans.high
CROSS JOIN json_each(
  CASE WHEN json_valid(CAST(lineage AS TEXT)) THEN CAST(lineage AS TEXT) ELSE '[]' END
) AS entry
CROSS JOIN json_each(
  CASE entry.type WHEN 'object' THEN entry.value ELSE '{}' END, '$.source_episode_ids'
) AS source
WHERE source.value IN (SELECT value FROM json_each(:ids))

-- name: retracted_by_people
SELECT wanted.value
FROM json_each(:ids) AS wanted
WHERE EXISTS (
  SELECT 1
  FROM slumberd_references AS refs
  WHERE refs.referenced = wanted.value
    AND refs.referrer >= '@/'
    AND refs.referrer < '@0'
)

-- name: ids_of_user
-- texts: none
SELECT fact_id, agent
FROM facts
WHERE user = :user

-- name: facts_of_owner_from_id
-- texts: none
SELECT fact_id, user, agent, payload, lineage, confidence, pinned_at, metadata
FROM facts
WHERE user = :user
  AND agent = :agent
  AND fact_id >= :low
  AND fact_id < :high
ORDER BY fact_id

-- name: facts_of_owner_from_id_backwards
-- texts: none
SELECT fact_id, user, agent, payload, lineage, confidence, pinned_at, metadata
FROM facts
WHERE user = :user
  AND agent = :agent
  AND fact_id >= :low
  AND fact_id < :high
ORDER BY fact_id DESC

-- name: agents_of_user
-- texts: none
WITH RECURSIVE agents (agent) AS (
  SELECT min(agent)
  FROM facts
  WHERE user = :user
  UNION ALL
  SELECT (SELECT min(facts.agent) FROM facts WHERE user = :user AND facts.agent > agents.agent)
  FROM agents
  WHERE agents.agent IS NOT NULL
)
SELECT agent
FROM agents
WHERE agent IS NOT NULL
LIMIT :limit

-- name: owners_from
-- texts: none
WITH RECURSIVE owners (user, agent) AS (
  SELECT user, agent
  FROM facts
  WHERE rowid = (
    SELECT first.rowid
    FROM facts AS first
    WHERE first.user >= :low
      AND first.user < :high
    ORDER BY first.user, first.agent
    LIMIT 1
  )
  UNION ALL
  SELECT facts.user, facts.agent
  FROM owners
  CROSS JOIN facts ON facts.rowid = (
    SELECT following.rowid
    FROM facts AS following
    WHERE (following.user, following.agent) > (owners.user, owners.agent)
      AND following.user < :high
    ORDER BY following.user, following.agent
    LIMIT 1
  )
)
SELECT user, agent, (
    SELECT count(*)
    FROM facts
    WHERE facts.user = owners.user
      AND facts.agent = owners.agent
      AND facts.fact_id < '@marks/'
  ) + (
    SELECT count(*)
    FROM facts
    WHERE facts.user = owners.user
      AND facts.agent = owners.agent
      AND facts.fact_id >= '@marks0'
      AND facts.fact_id < '@weights/'
  ) + (
    SELECT count(*)
    FROM facts
    WHERE facts.user = owners.user
      AND facts.agent = owners.agent
      AND facts.fact_id >= '@weights0'
  )
FROM owners

-- name: find_facts_of_users
-- texts: none
SELECT fact_id, user, agent, payload, lineage, confidence, pinned_at, metadata
FROM facts
WHERE user IN (SELECT value FROM json_each(:values))

-- name: find_facts_of_subjects
-- texts: none
SELECT fact_id, user, agent, payload, lineage, confidence, pinned_at, metadata
FROM facts
WHERE CASE WHEN json_valid(CAST(payload AS TEXT))
    THEN json_extract(CAST(payload AS TEXT), '$.subject') END
  IN (SELECT value FROM json_each(:values))

-- name: find_facts_of_subjects_between
-- texts: none
SELECT fact_id, user, agent, payload, lineage, confidence, pinned_at, metadata
FROM facts
WHERE CASE WHEN json_valid(CAST(payload AS TEXT))
    THEN json_extract(CAST(payload AS TEXT), '$.subject') END >= :low
  AND CASE WHEN json_valid(CAST(payload AS TEXT))
    THEN json_extract(CAST(payload AS TEXT), '$.subject') END < :high

-- name: find_facts_of_subject_and_predicates
-- texts: none
SELECT fact_id, user, agent, payload, lineage, confidence, pinned_at, metadata
FROM facts
WHERE CASE WHEN json_valid(CAST(payload AS TEXT))
    THEN json_extract(CAST(payload AS TEXT), '$.subject') END = :subject
  AND CASE WHEN json_valid(CAST(payload AS TEXT))
    THEN json_extract(CAST(payload AS TEXT), '$.predicate') END
    IN (SELECT value FROM json_each(:values))

-- name: find_facts_of_subject_and_predicates_between
-- texts: none
SELECT fact_id, user, agent, payload, lineage, confidence, pinned_at, metadata
FROM facts
WHERE CASE WHEN json_valid(CAST(payload AS TEXT))
    THEN json_extract(CAST(payload AS TEXT), '$.subject') END = :subject
  AND CASE WHEN json_valid(CAST(payload AS TEXT))
    THEN json_extract(CAST(payload AS TEXT), '$.predicate') END >= :low
  AND CASE WHEN json_valid(CAST(payload AS TEXT))
    THEN json_extract(CAST(payload AS TEXT), '$.predicate') END < :high

-- name: find_facts_of_objects
-- texts: none
SELECT fact_id, user, agent, payload, lineage, confidence, pinned_at, metadata
FROM facts
WHERE CASE WHEN json_valid(CAST(payload AS TEXT))
    THEN json_extract(CAST(payload AS TEXT), '$.object') END
  IN (SELECT value FROM json_each(:values))

-- name: find_facts_of_objects_between
-- texts: none
SELECT fact_id, user, agent, payload, lineage, confidence, pinned_at, metadata
FROM facts
WHERE CASE WHEN json_valid(CAST(payload AS TEXT))
    THEN json_extract(CAST(payload AS TEXT), '$.object') END >= :low
  AND CASE WHEN json_valid(CAST(payload AS TEXT))
    THEN json_extract(CAST(payload AS TEXT), '$.object') END < :high

-- name: find_facts_without_object
-- texts: none
SELECT fact_id, user, agent, payload, lineage, confidence, pinned_at, metadata
FROM facts
WHERE CASE WHEN json_valid(CAST(payload AS TEXT))
    THEN json_extract(CAST(payload AS TEXT), '$.object') END IS NULL
