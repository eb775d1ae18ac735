-- The move of a user from one shard to another; each statement names one shard, or the map.

-- Which users a shard has

-- name: lock_users
-- Each put that has begun holds this table until its end.
LOCK TABLE moved_users IN ACCESS EXCLUSIVE MODE

-- name: is_here
SELECT is_here(:escaped)

-- name: user
SELECT is_here, leaves_for, expected, peer, head
FROM moved_users
WHERE digest = digest(:user)

-- name: leave
INSERT INTO moved_users ("user", is_here, leaves_for, peer)
VALUES (:user, false, :target, :target)
ON CONFLICT (digest) DO UPDATE SET
  is_here = false,
  leaves_for = excluded.leaves_for,
  moved_at = clock_timestamp()

-- name: stay
UPDATE moved_users
SET is_here = true, leaves_for = NULL
WHERE digest = digest(:user)
  AND leaves_for IS NOT NULL

-- name: expect
INSERT INTO moved_users ("user", is_here, expected, peer)
VALUES (:user, false, :move, :source)
ON CONFLICT (digest) DO UPDATE SET
  expected = excluded.expected
WHERE NOT moved_users.is_here
  AND moved_users.leaves_for IS NULL

-- name: expect_no_more
UPDATE moved_users
SET expected = NULL
WHERE digest = digest(:user)

-- name: arrive
UPDATE moved_users
SET is_here = true, expected = NULL, peer = :source, head = :head, moved_at = clock_timestamp()
WHERE digest = digest(:user)
  AND NOT is_here
  AND expected = :move

-- name: finish
UPDATE moved_users
SET leaves_for = NULL, peer = :target, head = :head
WHERE digest = digest(:user)
  AND leaves_for = :target

-- name: leaving
SELECT "user", leaves_for
FROM moved_users
WHERE leaves_for IS NOT NULL
ORDER BY moved_at, "user"

-- The map

-- name: begin_in_map
INSERT INTO slumberd.users AS users ("user", shard, moving_to)
SELECT :user::text, shard, :target::smallint
FROM slumberd.find_users(ARRAY[:user::text])
WHERE shard = :source::smallint
ON CONFLICT (digest) DO UPDATE SET
  moving_to = excluded.moving_to,
  since = clock_timestamp()
WHERE users.shard = excluded.shard
  AND (users.moving_to IS NULL OR users.moving_to = excluded.moving_to)

-- name: place_of_user
SELECT shard, moving_to
FROM slumberd.find_users(ARRAY[:user::text])

-- name: end_in_map
UPDATE slumberd.users
SET shard = :target, moving_to = NULL, planned_for = NULL, since = clock_timestamp()
WHERE "user" = :user
  AND shard = :source
  AND moving_to = :target

-- name: take_back_in_map
UPDATE slumberd.users
SET moving_to = NULL
WHERE "user" = :user
  AND shard = :source
  AND moving_to = :target

-- name: begun_from
SELECT "user", moving_to
FROM slumberd.users
WHERE shard = :source
  AND moving_to IS NOT NULL
ORDER BY since, "user"

-- name: planned_from
SELECT "user", planned_for
FROM slumberd.users
WHERE shard = :source
  AND planned_for IS NOT NULL
ORDER BY since, "user"
LIMIT :limit

-- name: drop_plan
UPDATE slumberd.users
SET planned_for = NULL
WHERE "user" = :user
  AND shard = :source

-- name: left_to_move
SELECT shard, coalesce(moving_to, planned_for), count(*)
FROM slumberd.users
WHERE moving_to IS NOT NULL
  OR planned_for IS NOT NULL
GROUP BY 1, 2
ORDER BY 1, 2

-- A new shard; these statements run as the owner of the schemas

-- name: become_owner
SET LOCAL ROLE slumberd_owner

-- name: lock_map
LOCK TABLE slumberd.positions IN SHARE ROW EXCLUSIVE MODE

-- name: add_shard
INSERT INTO slumberd.shards (number, address)
VALUES (:number, :address)

-- name: positions
SELECT position, shard, moves_to
FROM slumberd.positions
ORDER BY position

-- name: plan_positions
UPDATE slumberd.positions
SET moves_to = :target
WHERE position = ANY (:positions::bigint[])

-- name: end_positions
UPDATE slumberd.positions
SET shard = :target, moves_to = NULL
WHERE position = ANY (:positions::bigint[])

-- name: plan_users
-- many: each parameter is an array
INSERT INTO slumberd.users AS users ("user", shard, planned_for)
SELECT given.*
FROM unnest(?::text[], ?::bigint[], ?::bigint[]) AS given
ON CONFLICT (digest) DO UPDATE SET
  planned_for = excluded.planned_for
WHERE users.shard = excluded.shard

-- name: name_users_here
-- Users without a row of their own lie where their positions do.
INSERT INTO moved_users ("user", is_here, peer)
SELECT replace(replace(found.name, '%2F', '/'), '%25', '%'), true, :number
FROM (
  SELECT split_part(scope_key, '/', 3)
  FROM episodes
  UNION
  SELECT split_part(key, '/', 1)
  FROM slumberd_keys
  UNION
  SELECT split_part(owner, '/', 1)
  FROM slumberd_quarantine
) AS found(name)
WHERE found.name != ''
  AND position_of(found.name) = ANY (:positions::bigint[])
  AND is_here(found.name)
ON CONFLICT DO NOTHING

-- name: users_here
SELECT "user"
FROM moved_users
WHERE is_here
  AND position_of(replace(replace("user", '%', '%25'), '/', '%2F')) = ANY (:positions::bigint[])
ORDER BY "user"

-- name: lack_positions
INSERT INTO absent_positions (position)
SELECT unnest(:positions::bigint[])
ON CONFLICT DO NOTHING

-- name: have_positions
DELETE FROM absent_positions
WHERE position = ANY (:positions::bigint[])

-- What the source has of a user

-- name: episodes
SELECT rid, id, scope_key, content, timestamp, metadata
FROM episodes
WHERE of_user = short('/user/' || :escaped || '/')
  AND split_part(scope_key, '/', 3) = :escaped
ORDER BY rid

-- name: versions
SELECT seq, rid, eid
FROM slumberd_episode_log
WHERE rid = ANY (:rids::bigint[])
  AND eid = ANY (:eids::text[])
UNION ALL
SELECT seq, rid, eid
FROM slumberd_episode_log
WHERE rid IS NULL
  AND eid = ANY (:eids::text[])
ORDER BY seq

-- name: rows
SELECT seq, delta, firing, what, kind, reason, version, key_id, at, fact_id, replaces, payload,
  salt, commitment, chain
FROM slumberd_ledger
WHERE seq = ANY (:rows::bigint[])
ORDER BY seq

-- name: firings
SELECT firings.n, firings.rule, firings.rule_hash, firings.cause, firings.at,
  -- include: recorded_at
  AS recorded_at, own.payload
FROM slumberd_firings AS firings
INNER JOIN slumberd_ledger AS own ON own.seq = firings.n
WHERE firings.n = ANY (:firings::bigint[])
ORDER BY firings.n

-- name: skipped
SELECT rule, first, last
FROM skipped_versions
ORDER BY rule, first

-- name: channels
SELECT seq, multi_valued
FROM slumberd_channels
ORDER BY seq

-- name: keys
SELECT key, slot, key_id, winner_at, winner_rank, winner_id, winner_part, winner_fact,
  winner_object, retractions, replaced
FROM slumberd_keys
WHERE left(key, 256) >= left(:low, 256)
  AND left(key, 256) <= left(:high, 256)
  AND key >= :low
  AND key < :high
ORDER BY key, slot

-- name: facts
SELECT fact_id, "user", agent, payload, lineage, confidence, metadata, pinned_at
FROM facts
WHERE short("user") = short(:user)
  AND "user" = :user
ORDER BY fact_id

-- name: references
SELECT referenced, referrer
FROM slumberd_references
WHERE referrer = ANY (:ids::text[])
ORDER BY referenced, referrer

-- name: quarantine
SELECT rule, channel, eid, version, owner, reason, detail, seq
FROM slumberd_quarantine
WHERE seq = ANY (:rows::bigint[])
ORDER BY rule, channel, eid

-- name: accesses
SELECT eid, scope_key, count, last, held
FROM slumberd_accesses
WHERE eid = ANY (:eids::text[])
ORDER BY eid

-- name: extractions
SELECT key, eid, model, status, triples, dropped, problem, answer, attempts, at
FROM slumberd_extractions
WHERE eid = ANY (:eids::text[])
ORDER BY key

-- name: summaries
SELECT key, eid, model, status, text, problem, attempts, at
FROM slumberd_model_summaries
WHERE eid = ANY (:eids::text[])
ORDER BY key

-- name: requests
SELECT eid, id, scope_key, key, request
FROM slumberd_model_requests
WHERE eid = ANY (:eids::text[])
ORDER BY eid, id

-- name: count
SELECT (
    SELECT count(*)
    FROM episodes
    WHERE of_user = short('/user/' || :escaped || '/')
      AND split_part(scope_key, '/', 3) = :escaped
  ), (
    SELECT count(*)
    FROM facts
    WHERE short("user") = short(:user)
      AND "user" = :user
  )

-- What the target gets

-- name: taken_ids
SELECT id
FROM episodes
WHERE id = ANY (:ids::text[])
UNION
SELECT fact_id
FROM slumberd_ledger
WHERE fact_id = ANY (:ids::text[])
UNION
SELECT fact_id
FROM facts
WHERE fact_id = ANY (:ids::text[])
UNION
SELECT eid
FROM slumberd_quarantine
WHERE eid = ANY (:ids::text[])
LIMIT 10

-- name: new_rids
SELECT nextval('episode_numbers')
FROM generate_series(1, :count)

-- name: log_end
SELECT seq
FROM log_ends
FOR UPDATE

-- name: end_log
UPDATE log_ends
SET seq = :seq

-- name: drop_inbox
DELETE FROM inbox
WHERE rid = ANY (:rids::bigint[])

-- name: add_channels
INSERT INTO slumberd_channels (seq, multi_valued)
VALUES (?, ?)

-- name: add_extraction
-- many: each parameter is an array
INSERT INTO slumberd_extractions
  (key, eid, model, status, triples, dropped, problem, answer, attempts, at)
SELECT given.*
FROM unnest(
  ?::text[], ?::text[], ?::text[], ?::text[], ?::text[], ?::bigint[], ?::text[], ?::text[],
  ?::bigint[], ?::bigint[]
) AS given
ON CONFLICT DO NOTHING

-- name: add_summary
-- many: each parameter is an array
INSERT INTO slumberd_model_summaries
  (key, eid, model, status, text, problem, attempts, at)
SELECT given.*
FROM unnest(
  ?::text[], ?::text[], ?::text[], ?::text[], ?::text[], ?::text[], ?::bigint[], ?::bigint[]
) AS given
ON CONFLICT DO NOTHING

-- name: add_request
-- many: each parameter is an array
INSERT INTO slumberd_model_requests (eid, id, scope_key, key, request)
SELECT given.*
FROM unnest(?::text[], ?::text[], ?::text[], ?::text[], ?::text[]) AS given
ON CONFLICT DO NOTHING

-- name: add_reference
-- many: each parameter is an array
INSERT INTO slumberd_references (referenced, referrer)
SELECT given.*
FROM unnest(?::text[], ?::text[]) AS given
ON CONFLICT DO NOTHING

-- name: readers
SELECT login::text, "user"
FROM reader_users

-- name: add_reader
-- many: each parameter is an array
INSERT INTO reader_users (login, "user")
SELECT given.*
FROM unnest(?::text[], ?::text[]) AS given
ON CONFLICT DO NOTHING

-- name: skip
-- many: each parameter is an array
INSERT INTO skipped_versions (rule, first, last)
SELECT given.*
FROM unnest(?::text[], ?::bigint[], ?::bigint[]) AS given

-- name: drop_skipped
DELETE FROM skipped_versions AS skipped
USING slumberd_watermark AS mark
WHERE mark.rule = skipped.rule
  AND mark.seq >= skipped.last

-- name: notify
SELECT pg_notify('slumberd_episodes', '')
