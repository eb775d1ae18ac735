-- The tables of one shard: a ledger with its facts, and a log of episodes. This is shard 0; for
-- another shard its number takes the place of the 0 in the name of the schema.
-- Texts compare by bytes (COLLATE "C"), as SQLite and Python compare them.

CREATE TABLE slumberd_0.migrations (
  number integer PRIMARY KEY,
  name text NOT NULL,
  applied_at timestamptz NOT NULL DEFAULT clock_timestamp(),
  works_with integer NOT NULL
);
COMMENT ON COLUMN slumberd_0.migrations.works_with IS
  'A slumberd whose newest step has at least this number works on the schema after this step.';

CREATE FUNCTION slumberd_0.digest(value text) RETURNS bytea
LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
AS $$ SELECT sha256(decode(replace(value, E'\\', E'\\\\'), 'escape')) $$;
COMMENT ON FUNCTION slumberd_0.digest IS
  'The SHA-256 of a text. An index holds it in place of texts that are too long for an index.';

-- Not STRICT: the planner would not put a CASE of a strict function into the place of its call,
-- and a call costs 1.5 us. Each episode has three of them, and each fact two.
CREATE FUNCTION slumberd_0.short(value text) RETURNS text
LANGUAGE sql IMMUTABLE PARALLEL SAFE
AS $$
  SELECT CASE
    WHEN octet_length(value) <= 400 THEN value
    ELSE left(value, 100) || '#' || encode(slumberd_0.digest(value), 'hex')
  END
$$;
COMMENT ON FUNCTION slumberd_0.short IS
  'A text in a form that an index can hold. Whoever looks it up compares the whole text, too.';

-- Who may write the shard, by the clock of the database. The epoch in "slumberd_numbers" makes it
-- safe.
CREATE TABLE slumberd_0.lease (
  id integer PRIMARY KEY CHECK (id = 1),
  holder text COLLATE "C",
  held_until timestamptz NOT NULL DEFAULT '-infinity',
  host jsonb NOT NULL DEFAULT '{}',
  last_holder text COLLATE "C",
  released_at timestamptz
) WITH (fillfactor = 20);
INSERT INTO slumberd_0.lease (id) VALUES (1);

-- The last number of the episode log, and of its deletions.
CREATE TABLE slumberd_0.log_ends (
  id integer PRIMARY KEY CHECK (id = 1),
  seq bigint NOT NULL DEFAULT 0,
  deletion bigint NOT NULL DEFAULT 0
) WITH (fillfactor = 20);
INSERT INTO slumberd_0.log_ends (id) VALUES (1);

-- Which users the shard has. A user has a position from 0 to 1023, and the shard has the users of
-- its positions. Users who were moved are named.
CREATE TABLE slumberd_0.absent_positions (
  position smallint PRIMARY KEY
);
CREATE TABLE slumberd_0.moved_users (
  "user" text COLLATE "C" NOT NULL,
  digest bytea PRIMARY KEY GENERATED ALWAYS AS (slumberd_0.digest("user")) STORED,
  is_here boolean NOT NULL,
  leaves_for smallint,
  expected bytea,
  peer smallint NOT NULL,
  head bytea,
  moved_at timestamptz NOT NULL DEFAULT clock_timestamp()
);
COMMENT ON TABLE slumberd_0.moved_users IS
  'Users who came from the shard "peer", or left for it, when its ledger had the head "head". While '
  'a user leaves, "leaves_for" is the next shard; "expected" is the number of the move that may '
  'bring the user.';

CREATE FUNCTION slumberd_0.position_of(user_key text) RETURNS smallint
LANGUAGE sql IMMUTABLE PARALLEL SAFE
AS $$
  SELECT (
    ('x' || encode(substr(slumberd_0.digest('/user/' || user_key || '/'), 1, 4), 'hex'))::bit(32)::bigint
    % 1024
  )::smallint
$$;
COMMENT ON FUNCTION slumberd_0.position_of IS
  'The position of a user, whose name is encoded as in a scope key.';

CREATE FUNCTION slumberd_0.is_here(user_key text) RETURNS boolean
LANGUAGE sql STABLE PARALLEL SAFE
AS $$
  SELECT coalesce(
    (
      SELECT is_here FROM slumberd_0.moved_users
      WHERE digest = slumberd_0.digest(replace(replace(user_key, '%2F', '/'), '%25', '%'))
    ),
    NOT EXISTS (
      SELECT 1 FROM slumberd_0.absent_positions WHERE position = slumberd_0.position_of(user_key)
    )
  )
$$;
COMMENT ON FUNCTION slumberd_0.is_here IS
  'Whether the shard has a user, whose name is encoded as in a scope key.';

-- Episodes

CREATE SEQUENCE slumberd_0.episode_numbers;

CREATE TABLE slumberd_0.episodes (
  rid bigint NOT NULL DEFAULT nextval('slumberd_0.episode_numbers'),
  id text COLLATE "C" NOT NULL,
  scope_key text COLLATE "C" NOT NULL,
  content bytea NOT NULL,
  timestamp text COLLATE "C" NOT NULL,
  metadata bytea NOT NULL,
  of_user text COLLATE "C" NOT NULL
    GENERATED ALWAYS AS (slumberd_0.short('/user/' || split_part(scope_key, '/', 3) || '/')) STORED,
  of_session text COLLATE "C" NOT NULL GENERATED ALWAYS AS (slumberd_0.short(
    '/user/' || split_part(scope_key, '/', 3) || '/session/' || split_part(scope_key, '/', 5)
    || '/agent/'
  )) STORED,
  of_agent text COLLATE "C" NOT NULL
    GENERATED ALWAYS AS (slumberd_0.short(split_part(scope_key, '/', 7) || '/')) STORED,
  PRIMARY KEY (id)
);
CREATE UNIQUE INDEX episodes_rid ON slumberd_0.episodes (rid);
CREATE INDEX episodes_session
  ON slumberd_0.episodes (of_session, of_agent, timestamp DESC);
CREATE INDEX episodes_agent ON slumberd_0.episodes (of_user, of_agent, timestamp DESC);

-- What was put, until it has a number in the log. Numbers must follow the order of commits.
CREATE TABLE slumberd_0.inbox (
  n bigint GENERATED ALWAYS AS IDENTITY,
  rid bigint,
  eid text COLLATE "C" NOT NULL,
  put_at timestamptz NOT NULL DEFAULT clock_timestamp(),
  PRIMARY KEY (n)
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 20000);

CREATE TABLE slumberd_0.slumberd_episode_log (
  seq bigint NOT NULL,
  rid bigint,
  eid text COLLATE "C" NOT NULL,
  PRIMARY KEY (seq)
);
CREATE INDEX episode_log_rid ON slumberd_0.slumberd_episode_log (rid, seq);

-- The number of a deleted episode is null when it is not known which one was deleted.
CREATE TABLE slumberd_0.slumberd_episode_deletions (
  number bigint NOT NULL,
  rid bigint,
  PRIMARY KEY (number)
);

CREATE TABLE slumberd_0.slumberd_accesses (
  eid text COLLATE "C" NOT NULL,
  scope_key text COLLATE "C" NOT NULL,
  count bigint NOT NULL,
  last bigint,
  held integer NOT NULL,
  PRIMARY KEY (eid)
);

CREATE TABLE slumberd_0.slumberd_extractions (
  key text COLLATE "C" NOT NULL,
  eid text COLLATE "C" NOT NULL,
  model text NOT NULL,
  status text NOT NULL,
  triples text NOT NULL,
  dropped bigint NOT NULL,
  problem text NOT NULL,
  answer text NOT NULL,
  attempts bigint NOT NULL,
  at bigint NOT NULL,
  PRIMARY KEY (key)
);
CREATE INDEX extractions_eid ON slumberd_0.slumberd_extractions (eid);

CREATE TABLE slumberd_0.slumberd_model_summaries (
  key text COLLATE "C" NOT NULL,
  eid text COLLATE "C" NOT NULL,
  model text NOT NULL,
  status text NOT NULL,
  text text NOT NULL,
  problem text NOT NULL,
  attempts bigint NOT NULL,
  at bigint NOT NULL,
  PRIMARY KEY (key)
);
CREATE INDEX model_summaries_eid ON slumberd_0.slumberd_model_summaries (eid);

-- What language models were asked, with each episode whose words or facts a request holds.
CREATE TABLE slumberd_0.slumberd_model_requests (
  eid text COLLATE "C" NOT NULL,
  id text COLLATE "C" NOT NULL,
  scope_key text COLLATE "C" NOT NULL,
  key text NOT NULL,
  request text NOT NULL,
  PRIMARY KEY (eid, id)
);
CREATE INDEX model_requests_id ON slumberd_0.slumberd_model_requests (id);
COMMENT ON TABLE slumberd_0.slumberd_model_requests IS
  'Requests to language models. The row of an episode that was asked about has the key of its answer.';

CREATE TABLE slumberd_0.slumberd_model_usage (
  day text COLLATE "C" NOT NULL,
  calls bigint NOT NULL,
  tokens_in bigint NOT NULL,
  tokens_out bigint NOT NULL,
  cost_micros bigint NOT NULL,
  PRIMARY KEY (day)
);

-- The erased scopes, by their keyed hashes.
CREATE TABLE slumberd_0.slumberd_erasure_key (
  id integer PRIMARY KEY CHECK (id = 1),
  key bytea NOT NULL
);
CREATE TABLE slumberd_0.slumberd_erased_scopes (
  digest bytea PRIMARY KEY,
  moment bigint NOT NULL
);

-- Facts and their ledger

CREATE TABLE slumberd_0.facts (
  fact_id text COLLATE "C" NOT NULL,
  "user" text COLLATE "C" NOT NULL,
  agent text COLLATE "C" NOT NULL,
  payload bytea NOT NULL,
  lineage bytea NOT NULL,
  confidence double precision NOT NULL,
  metadata bytea NOT NULL,
  pinned_at text COLLATE "C" NOT NULL,
  subject text COLLATE "C",
  predicate text COLLATE "C",
  object text COLLATE "C",
  object_number double precision,
  PRIMARY KEY (fact_id)
) WITH (fillfactor = 90);
CREATE INDEX facts_owner
  ON slumberd_0.facts (slumberd_0.short("user"), slumberd_0.short(agent), fact_id);
CREATE INDEX facts_subject_predicate
  ON slumberd_0.facts (left(subject, 256), left(predicate, 256));
CREATE INDEX facts_object ON slumberd_0.facts (left(object, 256));
CREATE INDEX facts_object_number ON slumberd_0.facts (object_number)
  WHERE object_number IS NOT NULL;

CREATE TABLE slumberd_0.slumberd_keys (
  key text COLLATE "C" NOT NULL,
  slot text COLLATE "C" NOT NULL,
  key_id bigint NOT NULL,
  winner_at bigint,
  winner_rank bigint,
  winner_id text COLLATE "C",
  winner_part bigint,
  winner_fact text COLLATE "C",
  winner_object text COLLATE "C",
  retractions bytea,
  replaced bytea,
  digest bytea NOT NULL GENERATED ALWAYS AS (slumberd_0.digest(key)) STORED,
  PRIMARY KEY (digest, slot)
) WITH (fillfactor = 80);
CREATE INDEX keys_prefix ON slumberd_0.slumberd_keys (left(key, 256));
CREATE INDEX keys_number ON slumberd_0.slumberd_keys (key_id);

CREATE TABLE slumberd_0.slumberd_firings (
  n bigint NOT NULL,
  rule text COLLATE "C" NOT NULL,
  rule_hash text COLLATE "C" NOT NULL,
  cause text COLLATE "C" NOT NULL,
  at bigint NOT NULL,
  last_seq bigint NOT NULL,
  generation bigint NOT NULL,
  upto_seq bigint NOT NULL,
  upto_eid text COLLATE "C" NOT NULL,
  counts bytea NOT NULL,
  PRIMARY KEY (n)
);
CREATE INDEX firings_rule ON slumberd_0.slumberd_firings (rule, n);

CREATE TABLE slumberd_0.slumberd_ledger (
  seq bigint NOT NULL,
  delta bigint NOT NULL,
  firing bigint NOT NULL,
  what integer NOT NULL,
  kind integer NOT NULL,
  reason text COLLATE "C" NOT NULL,
  version bigint NOT NULL,
  key_id bigint,
  at bigint,
  fact_id text COLLATE "C",
  replaces text COLLATE "C",
  salt bytea,
  payload bytea,
  commitment bytea NOT NULL,
  chain bytea NOT NULL,
  PRIMARY KEY (seq)
);
CREATE INDEX ledger_key ON slumberd_0.slumberd_ledger (key_id) WHERE key_id IS NOT NULL;
CREATE INDEX ledger_fact ON slumberd_0.slumberd_ledger (fact_id) WHERE fact_id IS NOT NULL;
CREATE INDEX ledger_without_key ON slumberd_0.slumberd_ledger (what) WHERE what IN (2, 3, 8);
CREATE INDEX ledger_erased ON slumberd_0.slumberd_ledger (seq) WHERE salt IS NULL;

CREATE TABLE slumberd_0.slumberd_references (
  referenced text COLLATE "C" NOT NULL,
  referrer text COLLATE "C" NOT NULL,
  digest bytea NOT NULL GENERATED ALWAYS AS (slumberd_0.digest(referenced)) STORED,
  PRIMARY KEY (digest, referrer)
);
CREATE INDEX claim_references_prefix ON slumberd_0.slumberd_references (left(referenced, 256));

CREATE TABLE slumberd_0.slumberd_watermark (
  rule text COLLATE "C" NOT NULL,
  seq bigint NOT NULL,
  eid text COLLATE "C" NOT NULL,
  served bigint NOT NULL,
  PRIMARY KEY (rule)
) WITH (fillfactor = 50);

-- Versions that arrived with moved users, and that a rule has read in another shard.
CREATE TABLE slumberd_0.skipped_versions (
  rule text COLLATE "C" NOT NULL,
  first bigint NOT NULL,
  last bigint NOT NULL,
  PRIMARY KEY (rule, first)
);

CREATE TABLE slumberd_0.slumberd_successes (
  rule text COLLATE "C" NOT NULL,
  at bigint NOT NULL,
  PRIMARY KEY (rule)
) WITH (fillfactor = 50);

CREATE TABLE slumberd_0.slumberd_quarantine (
  rule text COLLATE "C" NOT NULL,
  channel text COLLATE "C" NOT NULL,
  eid text COLLATE "C" NOT NULL,
  version bigint NOT NULL,
  owner text COLLATE "C" NOT NULL,
  reason text COLLATE "C" NOT NULL,
  detail text COLLATE "C" NOT NULL,
  seq bigint NOT NULL,
  PRIMARY KEY (rule, channel, eid)
);

CREATE TABLE slumberd_0.slumberd_channels (
  seq bigint NOT NULL,
  multi_valued bytea NOT NULL,
  PRIMARY KEY (seq)
);

CREATE TABLE slumberd_0.slumberd_generations (
  generation bigint NOT NULL,
  after bigint NOT NULL,
  PRIMARY KEY (generation)
);

CREATE TABLE slumberd_0.slumberd_held_batches (
  rule text COLLATE "C" NOT NULL,
  n bigint NOT NULL,
  upto_seq bigint NOT NULL,
  upto_eid text COLLATE "C" NOT NULL,
  problem text COLLATE "C" NOT NULL,
  approved integer NOT NULL,
  PRIMARY KEY (rule)
);

CREATE TABLE slumberd_0.slumberd_unfinished_erasures (
  scope text COLLATE "C" NOT NULL,
  eids bytea NOT NULL,
  moment bigint NOT NULL,
  by text COLLATE "C" NOT NULL,
  PRIMARY KEY (scope)
);

-- The row "epoch" is the lock of the ledger: each transaction that writes facts locks it first.
CREATE TABLE slumberd_0.slumberd_numbers (
  name text COLLATE "C" NOT NULL,
  value bigint NOT NULL,
  PRIMARY KEY (name)
) WITH (fillfactor = 50);

-- The versions of the columns that programs have added by Store.migrate.
CREATE TABLE slumberd_0.store_migrations (
  store text NOT NULL,
  version bigint NOT NULL,
  applied_at text NOT NULL,
  PRIMARY KEY (store, version)
);

CREATE TABLE slumberd_0.paused_rules (
  rule text COLLATE "C" NOT NULL,
  state jsonb NOT NULL,
  PRIMARY KEY (rule)
);

-- A request for an operation: any host writes it, and the daemon that holds the shard answers it.
CREATE TABLE slumberd_0.requests (
  number bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  operation text NOT NULL,
  request bytea NOT NULL,
  host text NOT NULL,
  requested_at timestamptz NOT NULL DEFAULT clock_timestamp(),
  holder text,
  answer bytea,
  answered_at timestamptz
);
CREATE INDEX requests_open ON slumberd_0.requests (number) WHERE answered_at IS NULL;

-- Functions

CREATE FUNCTION slumberd_0.record_versions() RETURNS trigger
LANGUAGE plpgsql
AS $$
BEGIN
  INSERT INTO slumberd_0.inbox (rid, eid)
  SELECT rid, id FROM written ORDER BY rid;
  RETURN NULL;
END
$$;
CREATE TRIGGER record_inserted AFTER INSERT ON slumberd_0.episodes
  REFERENCING NEW TABLE AS written
  FOR EACH STATEMENT EXECUTE FUNCTION slumberd_0.record_versions();
CREATE TRIGGER record_updated AFTER UPDATE ON slumberd_0.episodes
  REFERENCING NEW TABLE AS written
  FOR EACH STATEMENT EXECUTE FUNCTION slumberd_0.record_versions();

-- Deletions are numbered in the order of their commits, since the row of "log_ends" stays locked.
CREATE FUNCTION slumberd_0.record_deletions() RETURNS trigger
LANGUAGE plpgsql
AS $$
DECLARE
  last bigint;
BEGIN
  UPDATE slumberd_0.log_ends
  SET deletion = deletion + (SELECT count(*) FROM deleted)
  WHERE EXISTS (SELECT 1 FROM deleted)
  RETURNING deletion INTO last;
  INSERT INTO slumberd_0.slumberd_episode_deletions (number, rid)
  SELECT last + 1 - row_number() OVER (ORDER BY rid), rid FROM deleted;
  DELETE FROM slumberd_0.slumberd_episode_deletions WHERE number <= last - 10000;
  RETURN NULL;
END
$$;
CREATE TRIGGER record_deleted AFTER DELETE ON slumberd_0.episodes
  REFERENCING OLD TABLE AS deleted
  FOR EACH STATEMENT EXECUTE FUNCTION slumberd_0.record_deletions();

CREATE FUNCTION slumberd_0.number_inbox(most integer) RETURNS bigint
LANGUAGE plpgsql
AS $$
DECLARE
  last bigint;
  moved bigint;
BEGIN
  -- The lock is a statement of its own: the next one then sees all that was committed before.
  SELECT seq INTO last FROM slumberd_0.log_ends FOR UPDATE;
  WITH taken AS (
    DELETE FROM slumberd_0.inbox
    WHERE n IN (SELECT n FROM slumberd_0.inbox ORDER BY n LIMIT most)
    RETURNING n, rid, eid
  ), numbered AS (
    INSERT INTO slumberd_0.slumberd_episode_log (seq, rid, eid)
    SELECT last + row_number() OVER (ORDER BY n), rid, eid FROM taken
    RETURNING 1
  )
  SELECT count(*) INTO moved FROM numbered;
  UPDATE slumberd_0.log_ends SET seq = last + moved WHERE moved > 0;
  RETURN moved;
END
$$;
COMMENT ON FUNCTION slumberd_0.number_inbox IS
  'Moves versions of episodes from the inbox into the log; returns how many.';

CREATE FUNCTION slumberd_0.as_jsonb(document bytea) RETURNS jsonb
LANGUAGE plpgsql IMMUTABLE STRICT
AS $$
BEGIN
  RETURN convert_from(document, 'UTF8')::jsonb;
EXCEPTION WHEN others THEN
  -- jsonb cannot hold U+0000.
  BEGIN
    RETURN replace(convert_from(document, 'UTF8'), '\u0000', '\ufffd')::jsonb;
  EXCEPTION WHEN others THEN
    RETURN NULL;
  END;
END
$$;
COMMENT ON FUNCTION slumberd_0.as_jsonb IS 'A JSON document as a value; null when it is none.';

CREATE FUNCTION slumberd_0.quoted(value text) RETURNS text
LANGUAGE plpgsql IMMUTABLE STRICT
AS $$
DECLARE
  written text := '';
  code integer;
  one text;
BEGIN
  IF value ~ '^[ !#-\[\]-~]*$' THEN
    RETURN '"' || value || '"';
  END IF;
  FOREACH one IN ARRAY string_to_array(value, NULL) LOOP
    code := ascii(one);
    written := written || CASE
      WHEN one IN ('"', E'\\') THEN E'\\' || one
      WHEN code BETWEEN 32 AND 126 THEN one
      WHEN code < 65536 THEN E'\\u' || lpad(to_hex(code), 4, '0')
      ELSE E'\\u' || to_hex(55296 + ((code - 65536) >> 10))
        || E'\\u' || to_hex(56320 + ((code - 65536) & 1023))
    END;
  END LOOP;
  RETURN '"' || written || '"';
END
$$;
COMMENT ON FUNCTION slumberd_0.quoted IS
  'A part of a scope as a JSON string in ASCII, as Python writes it. Parts hold no control codes.';

CREATE FUNCTION slumberd_0.keyed_digest(key bytea, message text) RETURNS bytea
LANGUAGE plpgsql IMMUTABLE STRICT
AS $$
DECLARE
  inner_pad bytea := decode(repeat('36', 64), 'hex');
  outer_pad bytea := decode(repeat('5c', 64), 'hex');
BEGIN
  IF length(key) > 64 THEN
    key := sha256(key);
  END IF;
  FOR place IN 0 .. length(key) - 1 LOOP
    inner_pad := set_byte(inner_pad, place, get_byte(inner_pad, place) # get_byte(key, place));
    outer_pad := set_byte(outer_pad, place, get_byte(outer_pad, place) # get_byte(key, place));
  END LOOP;
  RETURN sha256(outer_pad || sha256(inner_pad || convert_to(message, 'UTF8')));
END
$$;
COMMENT ON FUNCTION slumberd_0.keyed_digest IS 'HMAC-SHA-256 (RFC 2104).';

CREATE FUNCTION slumberd_0.erased_until(scope_key text) RETURNS bigint
LANGUAGE plpgsql STABLE STRICT
AS $$
DECLARE
  hmac_key bytea;
  parts text[] := ARRAY[
    slumberd_0.quoted(replace(replace(split_part(scope_key, '/', 3), '%2F', '/'), '%25', '%')),
    slumberd_0.quoted(replace(replace(split_part(scope_key, '/', 5), '%2F', '/'), '%25', '%')),
    slumberd_0.quoted(replace(replace(split_part(scope_key, '/', 7), '%2F', '/'), '%25', '%'))
  ];
BEGIN
  SELECT key INTO hmac_key FROM slumberd_0.slumberd_erasure_key;
  IF hmac_key IS NULL THEN
    RETURN NULL;
  END IF;
  RETURN (
    SELECT max(erased.moment)
    FROM (VALUES (parts[2]), ('null')) AS sessions(session)
    CROSS JOIN (VALUES (parts[3]), ('null')) AS agents(agent)
    INNER JOIN slumberd_0.slumberd_erased_scopes AS erased ON erased.digest = slumberd_0.keyed_digest(
      hmac_key, format('[%s, %s, %s]', parts[1], session, agent)
    )
  );
END
$$;
COMMENT ON FUNCTION slumberd_0.erased_until IS
  'The last erased instant of a scope, microseconds since 1970; null when nothing was erased.';

CREATE FUNCTION slumberd_0.means_the_same(one bytea, other bytea) RETURNS boolean
LANGUAGE plpgsql IMMUTABLE STRICT
AS $$
BEGIN
  -- As text: 1 and 1.0 are equal numbers, and different content.
  RETURN one = other
    OR convert_from(one, 'UTF8')::jsonb::text = convert_from(other, 'UTF8')::jsonb::text;
EXCEPTION WHEN others THEN
  RETURN false;
END
$$;

CREATE FUNCTION slumberd_0.is_erased(scope_key text, at text) RETURNS boolean
LANGUAGE plpgsql STABLE
AS $$
DECLARE
  moment bigint := slumberd_0.erased_until(scope_key);
BEGIN
  IF moment IS NULL THEN
    RETURN false;
  END IF;
  RETURN extract(epoch FROM at::timestamptz) * 1000000 <= moment;
END
$$;
COMMENT ON FUNCTION slumberd_0.is_erased IS
  'Whether an episode of this scope and time was erased, so that it must not come back.';

CREATE FUNCTION slumberd_0.is_erased_episode(scope_key text, eid text) RETURNS boolean
LANGUAGE plpgsql STABLE
AS $$
DECLARE
  hmac_key bytea;
  owner text := replace(replace(split_part(scope_key, '/', 3), '%2F', '/'), '%25', '%');
BEGIN
  SELECT key INTO hmac_key FROM slumberd_0.slumberd_erasure_key;
  IF hmac_key IS NULL THEN
    RETURN false;
  END IF;
  RETURN EXISTS (
    SELECT 1 FROM slumberd_0.slumberd_erased_scopes
    WHERE digest = slumberd_0.keyed_digest(
      hmac_key,
      format(
        'episode %s %s',
        encode(sha256(convert_to(owner, 'UTF8')), 'hex'),
        encode(sha256(convert_to(eid, 'UTF8')), 'hex')
      )
    )
  );
END
$$;
COMMENT ON FUNCTION slumberd_0.is_erased_episode IS
  'Whether an episode of the user of a scope was erased by its id, so that it must not come back.';

CREATE FUNCTION slumberd_0.put_one(
  new_id text, new_key text, new_content bytea, new_timestamp text, new_metadata bytea
) RETURNS text
LANGUAGE plpgsql
AS $$
DECLARE
  stored slumberd_0.episodes%ROWTYPE;
BEGIN
  IF slumberd_0.is_erased_episode(new_key, new_id) THEN
    RETURN 'erased_id';
  END IF;
  IF slumberd_0.is_erased(new_key, new_timestamp) THEN
    RETURN 'erased';
  END IF;
  INSERT INTO slumberd_0.episodes (id, scope_key, content, timestamp, metadata)
  VALUES (new_id, new_key, new_content, new_timestamp, new_metadata)
  ON CONFLICT (id) DO NOTHING;
  IF FOUND THEN
    RETURN 'new';
  END IF;
  SELECT * INTO stored FROM slumberd_0.episodes
  WHERE id = new_id AND scope_key = new_key
  FOR UPDATE;
  IF NOT FOUND THEN
    RETURN 'taken';
  END IF;
  IF stored.timestamp = new_timestamp
    AND slumberd_0.means_the_same(stored.content, new_content)
    AND slumberd_0.means_the_same(stored.metadata, new_metadata) THEN
    RETURN 'unchanged';
  END IF;
  UPDATE slumberd_0.episodes
  SET content = new_content, timestamp = new_timestamp, metadata = new_metadata
  WHERE id = new_id;
  RETURN 'changed';
END
$$;

CREATE FUNCTION slumberd_0.put(
  ids text[], scope_keys text[], contents bytea[], timestamps text[], metadatas bytea[]
) RETURNS text[]
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
  outcomes text[] := '{}';
  new_ones bigint[];
  elsewhere text;
BEGIN
  IF EXISTS (
    SELECT 1 FROM unnest(ids) AS given(id)
    WHERE octet_length(id) > 1000
  ) THEN
    RAISE EXCEPTION 'the id of an episode may have 1000 bytes' USING ERRCODE = 'SL002';
  END IF;
  IF EXISTS (
    SELECT 1 FROM unnest(scope_keys) AS given(scope_key)
    WHERE scope_key != '/user/' || split_part(scope_key, '/', 3)
        || '/session/' || split_part(scope_key, '/', 5)
        || '/agent/' || split_part(scope_key, '/', 7) || '/'
      OR '' IN (
        split_part(scope_key, '/', 3), split_part(scope_key, '/', 5), split_part(scope_key, '/', 7)
      )
  ) THEN
    RAISE EXCEPTION 'a scope key is /user/USER/session/SESSION/agent/AGENT/'
      USING ERRCODE = 'SL003';
  END IF;
  -- Who moves a user locks this table, and so waits for every put that has begun.
  LOCK TABLE slumberd_0.moved_users, slumberd_0.absent_positions IN ACCESS SHARE MODE;
  SELECT replace(replace(users.name, '%2F', '/'), '%25', '%') INTO elsewhere
  FROM (SELECT DISTINCT split_part(scope_key, '/', 3) FROM unnest(scope_keys) AS given(scope_key))
    AS users(name)
  WHERE NOT slumberd_0.is_here(users.name)
  LIMIT 1;
  IF FOUND THEN
    RAISE EXCEPTION '%', elsewhere USING ERRCODE = 'SL004';
  END IF;
  -- New ids first, all at once, and in the order of the ids: so nobody waits in a circle. Their
  -- numbers are in the order in which they were given.
  WITH firsts AS (
    SELECT min(n) AS n
    FROM unnest(ids) WITH ORDINALITY AS given(id, n)
    GROUP BY id
  ), given AS (
    SELECT nextval('slumberd_0.episode_numbers') AS rid, ordered.*
    FROM (
      SELECT given.*
      FROM unnest(ids, scope_keys, contents, timestamps, metadatas) WITH ORDINALITY
        AS given(id, scope_key, content, timestamp, metadata, n)
      INNER JOIN firsts ON firsts.n = given.n
      WHERE NOT EXISTS (SELECT 1 FROM slumberd_0.episodes WHERE episodes.id = given.id)
        AND NOT slumberd_0.is_erased_episode(given.scope_key, given.id)
        AND NOT slumberd_0.is_erased(given.scope_key, given.timestamp)
      ORDER BY given.n
    ) AS ordered
  ), inserted AS (
    INSERT INTO slumberd_0.episodes (rid, id, scope_key, content, timestamp, metadata)
    SELECT rid, id, scope_key, content, timestamp, metadata
    FROM given
    ORDER BY id COLLATE "C"
    ON CONFLICT (id) DO NOTHING
    RETURNING rid
  )
  SELECT array_agg(given.n) INTO new_ones
  FROM inserted
  INNER JOIN given ON given.rid = inserted.rid;
  IF cardinality(new_ones) = cardinality(ids) THEN
    RETURN array_fill('new'::text, ARRAY[cardinality(ids)]);
  END IF;
  PERFORM 1 FROM slumberd_0.episodes WHERE id = ANY (ids) ORDER BY id FOR UPDATE;
  FOR place IN 1 .. cardinality(ids) LOOP
    outcomes := outcomes || CASE
      WHEN place = ANY (new_ones) THEN 'new'
      ELSE slumberd_0.put_one(
        ids[place], scope_keys[place], contents[place], timestamps[place], metadatas[place]
      )
    END;
  END LOOP;
  RETURN outcomes;
END
$$;
COMMENT ON FUNCTION slumberd_0.put IS
  'Puts episodes. Returns for each: new, changed, unchanged, taken (another scope has the id), '
  'erased (its scope was erased) or erased_id (it was erased by its id). The episodes exist if the '
  'transaction commits. Raises SL004 with the name of a user whom the shard does not have.';

-- Whoever writes facts may have waited while a user was moved. So the tables refuse a user whom the
-- shard does not have, as put does.
CREATE FUNCTION slumberd_0.check_users() RETURNS trigger
LANGUAGE plpgsql
AS $$
DECLARE
  elsewhere text;
BEGIN
  IF NOT EXISTS (SELECT 1 FROM slumberd_0.moved_users)
    AND NOT EXISTS (SELECT 1 FROM slumberd_0.absent_positions) THEN
    RETURN NULL;
  END IF;
  IF TG_TABLE_NAME = 'facts' THEN
    SELECT users.name INTO elsewhere
    FROM (
      SELECT DISTINCT replace(replace("user", '%', '%25'), '/', '%2F') FROM written
    ) AS users(name)
    WHERE users.name != '' AND NOT slumberd_0.is_here(users.name)
    LIMIT 1;
  ELSE
    SELECT users.name INTO elsewhere
    FROM (SELECT DISTINCT split_part(key, '/', 1) FROM written) AS users(name)
    WHERE users.name != '' AND NOT slumberd_0.is_here(users.name)
    LIMIT 1;
  END IF;
  IF FOUND THEN
    RAISE EXCEPTION '%', replace(replace(elsewhere, '%2F', '/'), '%25', '%')
      USING ERRCODE = 'SL004';
  END IF;
  RETURN NULL;
END
$$;
CREATE TRIGGER check_inserted AFTER INSERT ON slumberd_0.facts
  REFERENCING NEW TABLE AS written
  FOR EACH STATEMENT EXECUTE FUNCTION slumberd_0.check_users();
CREATE TRIGGER check_updated AFTER UPDATE ON slumberd_0.facts
  REFERENCING NEW TABLE AS written
  FOR EACH STATEMENT EXECUTE FUNCTION slumberd_0.check_users();
CREATE TRIGGER check_inserted AFTER INSERT ON slumberd_0.slumberd_keys
  REFERENCING NEW TABLE AS written
  FOR EACH STATEMENT EXECUTE FUNCTION slumberd_0.check_users();
CREATE TRIGGER check_updated AFTER UPDATE ON slumberd_0.slumberd_keys
  REFERENCING NEW TABLE AS written
  FOR EACH STATEMENT EXECUTE FUNCTION slumberd_0.check_users();

-- Readers

-- The users that a login may read. A login without a row reads the user that it names by
-- SET slumberd.tenant, which any program of that login can change.
CREATE TABLE slumberd_0.reader_users (
  login name NOT NULL,
  "user" text COLLATE "C" NOT NULL,
  PRIMARY KEY (login, "user")
);

CREATE FUNCTION slumberd_0.may_read(wanted text) RETURNS boolean
LANGUAGE sql STABLE STRICT SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $$
  SELECT CASE
    WHEN EXISTS (SELECT 1 FROM slumberd_0.reader_users WHERE login = session_user)
    THEN EXISTS (
      SELECT 1 FROM slumberd_0.reader_users WHERE login = session_user AND "user" = wanted
    )
    ELSE wanted = current_setting('slumberd.tenant', true)
  END
$$;

ALTER TABLE slumberd_0.facts ENABLE ROW LEVEL SECURITY;
CREATE POLICY writers ON slumberd_0.facts TO slumberd_owner, slumberd_daemon
  USING (true) WITH CHECK (true);
CREATE POLICY readers ON slumberd_0.facts FOR SELECT TO slumberd_reader
  USING (slumberd_0.may_read("user"));

ALTER TABLE slumberd_0.episodes ENABLE ROW LEVEL SECURITY;
CREATE POLICY writers ON slumberd_0.episodes TO slumberd_owner, slumberd_daemon
  USING (true) WITH CHECK (true);
CREATE POLICY readers ON slumberd_0.episodes FOR SELECT TO slumberd_reader
  USING (slumberd_0.may_read(
    replace(replace(split_part(scope_key, '/', 3), '%2F', '/'), '%25', '%')
  ));

INSERT INTO slumberd_0.slumberd_numbers (name, value)
VALUES ('epoch', 0), ('logged', 0), ('key', 0), ('ours', 0), ('depth', 8);
