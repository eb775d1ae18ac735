-- name: find_facts_of_user
SELECT fact_id, "user", agent, payload, lineage, confidence, pinned_at, metadata
FROM facts
WHERE short("user") = short(:user)
  AND "user" = :user

-- name: find_facts_of_user_and_agent
SELECT fact_id, "user", agent, payload, lineage, confidence, pinned_at, metadata
FROM facts
WHERE short("user") = short(:user)
  AND short(agent) = short(:agent)
  AND "user" = :user
  AND agent = :agent

-- name: find_facts_of_subject
SELECT fact_id, "user", agent, payload, lineage, confidence, pinned_at, metadata
FROM facts
WHERE left(subject, 256) = left(:subject, 256)
  AND subject = :subject

-- name: find_facts_of_subject_and_predicate
SELECT fact_id, "user", agent, payload, lineage, confidence, pinned_at, metadata
FROM facts
WHERE left(subject, 256) = left(:subject, 256)
  AND subject = :subject
  AND left(predicate, 256) = left(:predicate, 256)
  AND predicate = :predicate

-- name: find_facts_of_object
SELECT fact_id, "user", agent, payload, lineage, confidence, pinned_at, metadata
FROM facts
WHERE left(object, 256) = left(:object, 256)
  AND object = :object

-- name: put_fact
-- many: each parameter is an array
INSERT INTO facts
  (fact_id, "user", agent, payload, lineage, confidence, metadata, pinned_at, subject,
   predicate, object, object_number)
SELECT given.*
FROM unnest(
  ?::text[], ?::text[], ?::text[], ?::bytea[], ?::bytea[], ?::double precision[], ?::bytea[],
  ?::text[], ?::text[], ?::text[], ?::text[], ?::double precision[]
) AS given
ON CONFLICT (fact_id) DO UPDATE SET
  "user" = excluded."user",
  agent = excluded.agent,
  payload = excluded.payload,
  lineage = excluded.lineage,
  confidence = excluded.confidence,
  metadata = excluded.metadata,
  pinned_at = excluded.pinned_at,
  subject = excluded.subject,
  predicate = excluded.predicate,
  object = excluded.object,
  object_number = excluded.object_number

-- name: cited_episodes
SELECT DISTINCT source.value
FROM facts
CROSS JOIN jsonb_path_query(
  as_jsonb(lineage), 'lax $[*].source_episode_ids[*]'
) AS found(source)
CROSS JOIN LATERAL (SELECT found.source #>> '{}') AS source(value)
WHERE source.value = ANY (:ids::text[])
  AND fact_id NOT LIKE '@marks/%'
  AND fact_id NOT LIKE '@weights/%'

-- name: retracted_by_people
SELECT DISTINCT refs.referenced
FROM unnest(:ids::text[]) AS wanted(value)
CROSS JOIN LATERAL (
  SELECT referenced, referrer
  FROM slumberd_references
  WHERE digest = digest(wanted.value)
  OFFSET 0
) AS refs
WHERE refs.referenced = wanted.value
  AND refs.referrer LIKE '@/%'

-- name: ids_of_user
SELECT fact_id, agent
FROM facts
WHERE short("user") = short(:user)
  AND "user" = :user

-- name: facts_of_owner_from_id
SELECT fact_id, "user", agent, payload, lineage, confidence, pinned_at, metadata
FROM facts
WHERE short("user") = short(:user)
  AND short(agent) = short(:agent)
  AND "user" = :user
  AND agent = :agent
  AND fact_id >= :low
  AND fact_id < :high
ORDER BY fact_id

-- name: facts_of_owner_from_id_backwards
SELECT fact_id, "user", agent, payload, lineage, confidence, pinned_at, metadata
FROM facts
WHERE short("user") = short(:user)
  AND short(agent) = short(:agent)
  AND "user" = :user
  AND agent = :agent
  AND fact_id >= :low
  AND fact_id < :high
ORDER BY fact_id DESC

-- name: agents_of_user
WITH RECURSIVE agents (short, agent) AS (
  (
    SELECT short(agent), agent
    FROM facts
    WHERE short("user") = short(:user)
    ORDER BY short(agent)
    LIMIT 1
  )
  UNION ALL
  SELECT following.short, following.agent
  FROM agents
  CROSS JOIN LATERAL (
    SELECT short(facts.agent), facts.agent
    FROM facts
    WHERE short(facts."user") = short(:user)
      AND short(facts.agent) > agents.short
    ORDER BY short(facts.agent)
    LIMIT 1
  ) AS following(short, agent)
)
SELECT agent
FROM agents
LIMIT :limit

-- name: owners_from
WITH RECURSIVE owners (short_user, short_agent, "user", agent) AS (
  (
    SELECT short("user"), short(agent), "user", agent
    FROM facts
    WHERE short("user") >= :prefix
      AND short("user") > short(:after)
      AND short("user") < :high
    ORDER BY short("user"), short(agent)
    LIMIT 1
  )
  UNION ALL
  SELECT following.short_user, following.short_agent, following."user", following.agent
  FROM owners
  CROSS JOIN LATERAL (
    SELECT short(facts."user"), short(facts.agent), facts."user", facts.agent
    FROM facts
    WHERE (short(facts."user"), short(facts.agent))
        > (owners.short_user, owners.short_agent)
      AND short(facts."user") < :high
    ORDER BY short(facts."user"), short(facts.agent)
    LIMIT 1
  ) AS following(short_user, short_agent, "user", agent)
)
SELECT "user", agent, (
    SELECT count(*)
    FROM facts
    WHERE short(facts."user") = owners.short_user
      AND short(facts.agent) = owners.short_agent
      AND facts.fact_id < '@marks/'
  ) + (
    SELECT count(*)
    FROM facts
    WHERE short(facts."user") = owners.short_user
      AND short(facts.agent) = owners.short_agent
      AND facts.fact_id >= '@marks0'
      AND facts.fact_id < '@weights/'
  ) + (
    SELECT count(*)
    FROM facts
    WHERE short(facts."user") = owners.short_user
      AND short(facts.agent) = owners.short_agent
      AND facts.fact_id >= '@weights0'
  )
FROM owners

-- name: find_facts_of_users
SELECT fact_id, "user", agent, payload, lineage, confidence, pinned_at, metadata
FROM facts
WHERE short("user") IN (
    SELECT short(value)
    FROM unnest(:values::text[]) AS wanted(value)
  )

-- name: find_facts_of_subjects
SELECT fact_id, "user", agent, payload, lineage, confidence, pinned_at, metadata
FROM facts
WHERE left(subject, 256) IN (SELECT left(unnest(:values::text[]), 256))

-- name: find_facts_of_subjects_between
SELECT fact_id, "user", agent, payload, lineage, confidence, pinned_at, metadata
FROM facts
WHERE left(subject, 256) >= left(:low, 256)
  AND left(subject, 256) <= left(:high, 256)
  AND subject >= :low
  AND subject < :high

-- name: find_facts_of_subject_and_predicates
SELECT fact_id, "user", agent, payload, lineage, confidence, pinned_at, metadata
FROM facts
WHERE left(subject, 256) = left(:subject, 256)
  AND subject = :subject
  AND left(predicate, 256) IN (SELECT left(unnest(:values::text[]), 256))

-- name: find_facts_of_subject_and_predicates_between
SELECT fact_id, "user", agent, payload, lineage, confidence, pinned_at, metadata
FROM facts
WHERE left(subject, 256) = left(:subject, 256)
  AND subject = :subject
  AND left(predicate, 256) >= left(:low, 256)
  AND left(predicate, 256) <= left(:high, 256)
  AND predicate >= :low
  AND predicate < :high

-- name: find_facts_of_objects
SELECT fact_id, "user", agent, payload, lineage, confidence, pinned_at, metadata
FROM facts
WHERE (
    left(object, 256) = ANY (SELECT left(unnest(:values::text[]), 256))
    OR object_number = ANY (:numbers::double precision[])
  )

-- name: find_facts_of_objects_between
SELECT fact_id, "user", agent, payload, lineage, confidence, pinned_at, metadata
FROM facts
WHERE (
    (left(object, 256) >= left(:low, 256) AND left(object, 256) <= left(:high, 256)
      AND object >= :low AND object < :high)
    OR (object_number >= :low_number::double precision
      AND object_number < :high_number::double precision)
  )

-- name: find_facts_without_object
SELECT fact_id, "user", agent, payload, lineage, confidence, pinned_at, metadata
FROM facts
WHERE object IS NULL
  AND object_number IS NULL
