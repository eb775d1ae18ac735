-- The tables of slumberd. A shard is one ledger with its facts, and one log of episodes.
-- Texts compare by bytes (COLLATE "C"), as SQLite and Python compare them.

CREATE TABLE slumberd.migrations (
  number integer PRIMARY KEY,
  name text NOT NULL,
  applied_at timestamptz NOT NULL DEFAULT clock_timestamp(),
  works_with integer NOT NULL
);
COMMENT ON COLUMN slumberd.migrations.works_with IS
  'A slumberd whose newest step has at least this number works on the schema after this step.';

CREATE FUNCTION slumberd.digest(value text) RETURNS bytea
LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
AS $$ SELECT sha256(decode(replace(value, E'\\', E'\\\\'), 'escape')) $$;
COMMENT ON FUNCTION slumberd.digest IS
  'The SHA-256 of a text. An index holds it in place of texts that are too long for an index.';

-- Not STRICT: the planner would not put a CASE of a strict function into the place of its call,
-- and a call costs 1.5 us. Each episode has three of them, and each fact two.
CREATE FUNCTION slumberd.short(value text) RETURNS text
LANGUAGE sql IMMUTABLE PARALLEL SAFE
AS $$
  SELECT CASE
    WHEN octet_length(value) <= 400 THEN value
    ELSE left(value, 100) || '#' || encode(slumberd.digest(value), 'hex')
  END
$$;
COMMENT ON FUNCTION slumberd.short IS
  'A text in a form that an index can hold. Whoever looks it up compares the whole text, too.';

-- Who may write a shard, by the clock of the database. The epoch in "numbers" makes it safe.
CREATE TABLE slumberd.shards (
  shard smallint PRIMARY KEY,
  holder text COLLATE "C",
  held_until timestamptz NOT NULL DEFAULT '-infinity',
  host jsonb NOT NULL DEFAULT '{}'
) WITH (fillfactor = 20);

-- The last number of each shard's episode log, and of its deletions.
CREATE TABLE slumberd.log_ends (
  shard smallint PRIMARY KEY REFERENCES slumberd.shards,
  seq bigint NOT NULL DEFAULT 0,
  deletion bigint NOT NULL DEFAULT 0
) WITH (fillfactor = 20);

CREATE FUNCTION slumberd.shard_among(shards bigint, scope_key text) RETURNS smallint
LANGUAGE sql IMMUTABLE PARALLEL SAFE
AS $$
  SELECT (
    ('x' || encode(substr(slumberd.digest(
      '/user/' || split_part(scope_key, '/', 3) || '/'
    ), 1, 4), 'hex'))::bit(32)::bigint % 1024 % shards
  )::smallint
$$;
COMMENT ON FUNCTION slumberd.shard_among IS
  'The shard of the user of a scope key, of so many shards.';

CREATE FUNCTION slumberd.shard_of(scope_key text) RETURNS smallint
LANGUAGE sql STABLE STRICT PARALLEL SAFE
AS $$ SELECT slumberd.shard_among((SELECT count(*) FROM slumberd.shards), scope_key) $$;
COMMENT ON FUNCTION slumberd.shard_of IS 'The shard of the user of a scope key.';

-- Episodes

CREATE SEQUENCE slumberd.episode_numbers;

CREATE TABLE slumberd.episodes (
  shard smallint NOT NULL,
  rid bigint NOT NULL DEFAULT nextval('slumberd.episode_numbers'),
  id text COLLATE "C" NOT NULL,
  scope_key text COLLATE "C" NOT NULL,
  content bytea NOT NULL,
  timestamp text COLLATE "C" NOT NULL,
  metadata bytea NOT NULL,
  of_user text COLLATE "C" NOT NULL
    GENERATED ALWAYS AS (slumberd.short('/user/' || split_part(scope_key, '/', 3) || '/')) STORED,
  of_session text COLLATE "C" NOT NULL GENERATED ALWAYS AS (slumberd.short(
    '/user/' || split_part(scope_key, '/', 3) || '/session/' || split_part(scope_key, '/', 5)
    || '/agent/'
  )) STORED,
  of_agent text COLLATE "C" NOT NULL
    GENERATED ALWAYS AS (slumberd.short(split_part(scope_key, '/', 7) || '/')) STORED,
  PRIMARY KEY (shard, id)
) PARTITION BY LIST (shard);
CREATE UNIQUE INDEX episodes_rid ON slumberd.episodes (shard, rid);
CREATE INDEX episodes_session
  ON slumberd.episodes (shard, of_session, of_agent, timestamp DESC);
CREATE INDEX episodes_agent ON slumberd.episodes (shard, of_user, of_agent, timestamp DESC);

-- The shard of each episode id: an id belongs to one episode in the whole database.
CREATE TABLE slumberd.episode_ids (
  id text COLLATE "C" PRIMARY KEY,
  shard smallint NOT NULL
);

-- What was put, until it has a number in the log. Numbers must follow the order of commits.
CREATE TABLE slumberd.inbox (
  n bigint GENERATED ALWAYS AS IDENTITY,
  shard smallint NOT NULL,
  rid bigint,
  eid text COLLATE "C" NOT NULL,
  put_at timestamptz NOT NULL DEFAULT clock_timestamp(),
  PRIMARY KEY (shard, n)
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 20000);

CREATE TABLE slumberd.episode_log (
  shard smallint NOT NULL,
  seq bigint NOT NULL,
  rid bigint,
  eid text COLLATE "C" NOT NULL,
  PRIMARY KEY (shard, seq)
) PARTITION BY LIST (shard);
CREATE INDEX episode_log_rid ON slumberd.episode_log (shard, rid, seq);

-- The number of a deleted episode is null when it is not known which one was deleted.
CREATE TABLE slumberd.episode_deletions (
  shard smallint NOT NULL,
  number bigint NOT NULL,
  rid bigint,
  PRIMARY KEY (shard, number)
);

CREATE TABLE slumberd.accesses (
  shard smallint NOT NULL,
  eid text COLLATE "C" NOT NULL,
  scope_key text COLLATE "C" NOT NULL,
  count bigint NOT NULL,
  last bigint,
  held integer NOT NULL,
  PRIMARY KEY (shard, eid)
);

CREATE TABLE slumberd.extractions (
  shard smallint NOT NULL,
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
  PRIMARY KEY (shard, key)
);
CREATE INDEX extractions_eid ON slumberd.extractions (shard, eid);

CREATE TABLE slumberd.model_summaries (
  shard smallint NOT NULL,
  key text COLLATE "C" NOT NULL,
  eid text COLLATE "C" NOT NULL,
  model text NOT NULL,
  status text NOT NULL,
  text text NOT NULL,
  problem text NOT NULL,
  attempts bigint NOT NULL,
  at bigint NOT NULL,
  PRIMARY KEY (shard, key)
);
CREATE INDEX model_summaries_eid ON slumberd.model_summaries (shard, eid);

CREATE TABLE slumberd.model_usage (
  shard smallint NOT NULL,
  day text COLLATE "C" NOT NULL,
  calls bigint NOT NULL,
  tokens_in bigint NOT NULL,
  tokens_out bigint NOT NULL,
  cost_micros bigint NOT NULL,
  PRIMARY KEY (shard, day)
);

-- The erased scopes of the whole database, by their keyed hashes.
CREATE TABLE slumberd.erasure_key (
  id integer PRIMARY KEY CHECK (id = 1),
  key bytea NOT NULL
);
CREATE TABLE slumberd.erased_scopes (
  digest bytea PRIMARY KEY,
  moment bigint NOT NULL
);

-- Facts and their ledger

CREATE TABLE slumberd.facts (
  shard smallint NOT NULL,
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
  PRIMARY KEY (shard, fact_id)
) PARTITION BY LIST (shard);
CREATE INDEX facts_owner
  ON slumberd.facts (shard, slumberd.short("user"), slumberd.short(agent), fact_id);
CREATE INDEX facts_subject_predicate
  ON slumberd.facts (shard, left(subject, 256), left(predicate, 256));
CREATE INDEX facts_object ON slumberd.facts (shard, left(object, 256));
CREATE INDEX facts_object_number ON slumberd.facts (shard, object_number)
  WHERE object_number IS NOT NULL;

CREATE TABLE slumberd.keys (
  shard smallint NOT NULL,
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
  digest bytea NOT NULL GENERATED ALWAYS AS (slumberd.digest(key)) STORED,
  PRIMARY KEY (shard, digest, slot)
) PARTITION BY LIST (shard);
CREATE INDEX keys_prefix ON slumberd.keys (shard, left(key, 256));
CREATE INDEX keys_number ON slumberd.keys (shard, key_id);

CREATE TABLE slumberd.firings (
  shard smallint NOT NULL,
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
  PRIMARY KEY (shard, n)
);
CREATE INDEX firings_rule ON slumberd.firings (shard, rule, n);

CREATE TABLE slumberd.ledger (
  shard smallint NOT NULL,
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
  PRIMARY KEY (shard, seq)
) PARTITION BY LIST (shard);
CREATE INDEX ledger_key ON slumberd.ledger (shard, key_id) WHERE key_id IS NOT NULL;
CREATE INDEX ledger_fact ON slumberd.ledger (shard, fact_id) WHERE fact_id IS NOT NULL;
CREATE INDEX ledger_without_key ON slumberd.ledger (shard, what) WHERE what IN (2, 3, 8);
CREATE INDEX ledger_erased ON slumberd.ledger (shard, seq) WHERE salt IS NULL;

CREATE TABLE slumberd.claim_references (
  shard smallint NOT NULL,
  referenced text COLLATE "C" NOT NULL,
  referrer text COLLATE "C" NOT NULL,
  digest bytea NOT NULL GENERATED ALWAYS AS (slumberd.digest(referenced)) STORED,
  PRIMARY KEY (shard, digest, referrer)
);
CREATE INDEX claim_references_prefix ON slumberd.claim_references (shard, left(referenced, 256));

CREATE TABLE slumberd.watermark (
  shard smallint NOT NULL,
  rule text COLLATE "C" NOT NULL,
  seq bigint NOT NULL,
  eid text COLLATE "C" NOT NULL,
  served bigint NOT NULL,
  PRIMARY KEY (shard, rule)
) WITH (fillfactor = 50);

-- Up to which row of a shard's log a rule with "every: N" is to read, since so many rows waited in
-- all shards together.
CREATE TABLE slumberd.calls (
  shard smallint NOT NULL,
  rule text COLLATE "C" NOT NULL,
  upto bigint NOT NULL,
  PRIMARY KEY (shard, rule)
) WITH (fillfactor = 50);

CREATE TABLE slumberd.successes (
  shard smallint NOT NULL,
  rule text COLLATE "C" NOT NULL,
  at bigint NOT NULL,
  PRIMARY KEY (shard, rule)
) WITH (fillfactor = 50);

CREATE TABLE slumberd.quarantine (
  shard smallint NOT NULL,
  rule text COLLATE "C" NOT NULL,
  channel text COLLATE "C" NOT NULL,
  eid text COLLATE "C" NOT NULL,
  version bigint NOT NULL,
  owner text COLLATE "C" NOT NULL,
  reason text COLLATE "C" NOT NULL,
  detail text COLLATE "C" NOT NULL,
  seq bigint NOT NULL,
  PRIMARY KEY (shard, rule, channel, eid)
);

CREATE TABLE slumberd.channels (
  shard smallint NOT NULL,
  seq bigint NOT NULL,
  multi_valued bytea NOT NULL,
  PRIMARY KEY (shard, seq)
);

CREATE TABLE slumberd.generations (
  shard smallint NOT NULL,
  generation bigint NOT NULL,
  after bigint NOT NULL,
  PRIMARY KEY (shard, generation)
);

CREATE TABLE slumberd.held_batches (
  shard smallint NOT NULL,
  rule text COLLATE "C" NOT NULL,
  n bigint NOT NULL,
  upto_seq bigint NOT NULL,
  upto_eid text COLLATE "C" NOT NULL,
  problem text COLLATE "C" NOT NULL,
  approved integer NOT NULL,
  PRIMARY KEY (shard, rule)
);

CREATE TABLE slumberd.unfinished_erasures (
  shard smallint NOT NULL,
  scope text COLLATE "C" NOT NULL,
  eids bytea NOT NULL,
  moment bigint NOT NULL,
  by text COLLATE "C" NOT NULL,
  PRIMARY KEY (shard, scope)
);

-- The row "epoch" of a shard is its lock: each transaction that writes its facts locks it first.
CREATE TABLE slumberd.numbers (
  shard smallint NOT NULL,
  name text COLLATE "C" NOT NULL,
  value bigint NOT NULL,
  PRIMARY KEY (shard, name)
) WITH (fillfactor = 50);

-- What the daemons of a database share, in place of files of a state directory

CREATE TABLE slumberd.hosts (
  name text COLLATE "C" PRIMARY KEY,
  seen_at timestamptz NOT NULL,
  state jsonb NOT NULL
) WITH (fillfactor = 50);

-- The published versions of the rules; the highest one is in force on the hosts that take them.
-- The document has the texts of the files by name: {"files": {"NAME": "TEXT"}}.
CREATE TABLE slumberd.rule_sets (
  version bigint PRIMARY KEY,
  hash text NOT NULL,
  document jsonb NOT NULL,
  published_at timestamptz NOT NULL DEFAULT clock_timestamp(),
  by text NOT NULL,
  reason text NOT NULL
);

-- The versions of the columns that programs have added by Store.migrate.
CREATE TABLE slumberd.store_migrations (
  store text NOT NULL,
  version bigint NOT NULL,
  applied_at text NOT NULL,
  PRIMARY KEY (store, version)
);

CREATE TABLE slumberd.paused_rules (
  shard smallint NOT NULL DEFAULT 0 REFERENCES slumberd.shards,
  rule text COLLATE "C" NOT NULL,
  state jsonb NOT NULL,
  PRIMARY KEY (shard, rule)
);

-- A request for an operation: any host writes it, and the daemon that holds the shard answers it.
CREATE TABLE slumberd.requests (
  number bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  shard smallint NOT NULL DEFAULT 0 REFERENCES slumberd.shards,
  operation text NOT NULL,
  request bytea NOT NULL,
  host text NOT NULL,
  requested_at timestamptz NOT NULL DEFAULT clock_timestamp(),
  holder text,
  answer bytea,
  answered_at timestamptz
);
CREATE INDEX requests_open ON slumberd.requests (shard, number) WHERE answered_at IS NULL;

-- Functions

CREATE FUNCTION slumberd.record_versions() RETURNS trigger
LANGUAGE plpgsql
AS $$
BEGIN
  INSERT INTO slumberd.inbox (shard, rid, eid)
  SELECT shard, rid, id FROM written ORDER BY rid;
  RETURN NULL;
END
$$;
CREATE TRIGGER record_inserted AFTER INSERT ON slumberd.episodes
  REFERENCING NEW TABLE AS written
  FOR EACH STATEMENT EXECUTE FUNCTION slumberd.record_versions();
CREATE TRIGGER record_updated AFTER UPDATE ON slumberd.episodes
  REFERENCING NEW TABLE AS written
  FOR EACH STATEMENT EXECUTE FUNCTION slumberd.record_versions();

-- Deletions are numbered in the order of their commits, since the row of "log_ends" stays locked.
CREATE FUNCTION slumberd.record_deletions() RETURNS trigger
LANGUAGE plpgsql
AS $$
DECLARE
  one smallint;
BEGIN
  FOR one IN SELECT DISTINCT shard FROM deleted ORDER BY shard LOOP
    UPDATE slumberd.log_ends AS ends
    SET deletion = ends.deletion + (SELECT count(*) FROM deleted WHERE shard = one)
    WHERE ends.shard = one;
    INSERT INTO slumberd.episode_deletions (shard, number, rid)
    SELECT one, ends.deletion + 1 - row_number() OVER (ORDER BY rid), rid
    FROM deleted
    CROSS JOIN slumberd.log_ends AS ends
    WHERE deleted.shard = one AND ends.shard = one;
    DELETE FROM slumberd.episode_deletions AS earlier
    WHERE earlier.shard = one
      AND earlier.number <= (SELECT deletion FROM slumberd.log_ends WHERE shard = one) - 10000;
  END LOOP;
  DELETE FROM slumberd.episode_ids WHERE id IN (SELECT id FROM deleted);
  RETURN NULL;
END
$$;
CREATE TRIGGER record_deleted AFTER DELETE ON slumberd.episodes
  REFERENCING OLD TABLE AS deleted
  FOR EACH STATEMENT EXECUTE FUNCTION slumberd.record_deletions();

CREATE FUNCTION slumberd.number_inbox(wanted smallint, most integer) RETURNS bigint
LANGUAGE plpgsql
AS $$
DECLARE
  last bigint;
  moved bigint;
BEGIN
  -- The lock is a statement of its own: the next one then sees all that was committed before.
  SELECT seq INTO last FROM slumberd.log_ends WHERE shard = wanted FOR UPDATE;
  WITH taken AS (
    DELETE FROM slumberd.inbox
    WHERE shard = wanted
      AND n IN (SELECT n FROM slumberd.inbox WHERE shard = wanted ORDER BY n LIMIT most)
    RETURNING n, rid, eid
  ), numbered AS (
    INSERT INTO slumberd.episode_log (shard, seq, rid, eid)
    SELECT wanted, last + row_number() OVER (ORDER BY n), rid, eid FROM taken
    RETURNING 1
  )
  SELECT count(*) INTO moved FROM numbered;
  UPDATE slumberd.log_ends SET seq = last + moved WHERE shard = wanted AND moved > 0;
  RETURN moved;
END
$$;
COMMENT ON FUNCTION slumberd.number_inbox IS
  'Moves versions of episodes from the inbox into the log; returns how many.';

CREATE FUNCTION slumberd.as_jsonb(document bytea) RETURNS jsonb
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
COMMENT ON FUNCTION slumberd.as_jsonb IS 'A JSON document as a value; null when it is none.';

CREATE FUNCTION slumberd.quoted(value text) RETURNS text
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
COMMENT ON FUNCTION slumberd.quoted IS
  'A part of a scope as a JSON string in ASCII, as Python writes it. Parts hold no control codes.';

CREATE FUNCTION slumberd.keyed_digest(key bytea, message text) RETURNS bytea
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
COMMENT ON FUNCTION slumberd.keyed_digest IS 'HMAC-SHA-256 (RFC 2104).';

CREATE FUNCTION slumberd.erased_until(scope_key text) RETURNS bigint
LANGUAGE plpgsql STABLE STRICT
AS $$
DECLARE
  hmac_key bytea;
  parts text[] := ARRAY[
    slumberd.quoted(replace(replace(split_part(scope_key, '/', 3), '%2F', '/'), '%25', '%')),
    slumberd.quoted(replace(replace(split_part(scope_key, '/', 5), '%2F', '/'), '%25', '%')),
    slumberd.quoted(replace(replace(split_part(scope_key, '/', 7), '%2F', '/'), '%25', '%'))
  ];
BEGIN
  SELECT key INTO hmac_key FROM slumberd.erasure_key;
  IF hmac_key IS NULL THEN
    RETURN NULL;
  END IF;
  RETURN (
    SELECT max(erased.moment)
    FROM (VALUES (parts[2]), ('null')) AS sessions(session)
    CROSS JOIN (VALUES (parts[3]), ('null')) AS agents(agent)
    INNER JOIN slumberd.erased_scopes AS erased ON erased.digest = slumberd.keyed_digest(
      hmac_key, format('[%s, %s, %s]', parts[1], session, agent)
    )
  );
END
$$;
COMMENT ON FUNCTION slumberd.erased_until IS
  'The last erased instant of a scope, microseconds since 1970; null when nothing was erased.';

CREATE FUNCTION slumberd.means_the_same(one bytea, other bytea) RETURNS boolean
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

CREATE FUNCTION slumberd.is_erased(scope_key text, at text) RETURNS boolean
LANGUAGE plpgsql STABLE
AS $$
DECLARE
  moment bigint := slumberd.erased_until(scope_key);
BEGIN
  IF moment IS NULL THEN
    RETURN false;
  END IF;
  RETURN extract(epoch FROM at::timestamptz) * 1000000 <= moment;
END
$$;
COMMENT ON FUNCTION slumberd.is_erased IS
  'Whether an episode of this scope and time was erased, so that it must not come back.';

CREATE FUNCTION slumberd.claim(new_id text, own smallint) RETURNS boolean
LANGUAGE plpgsql
AS $$
BEGIN
  INSERT INTO slumberd.episode_ids (id, shard) VALUES (new_id, own) ON CONFLICT DO NOTHING;
  IF NOT FOUND THEN
    PERFORM 1 FROM slumberd.episodes WHERE shard = own AND id = new_id FOR UPDATE;
    RETURN false;
  END IF;
  RETURN true;
END
$$;
COMMENT ON FUNCTION slumberd.claim IS
  'Locks an id until the transaction ends. Returns whether the id is new.';

CREATE FUNCTION slumberd.put_one(
  new_id text, new_key text, new_content bytea, new_timestamp text, new_metadata bytea,
  is_claimed boolean DEFAULT NULL
) RETURNS text
LANGUAGE plpgsql
AS $$
DECLARE
  own smallint := slumberd.shard_of(new_key);
  stored slumberd.episodes%ROWTYPE;
BEGIN
  IF slumberd.is_erased(new_key, new_timestamp) THEN
    RETURN 'erased';
  END IF;
  IF coalesce(is_claimed, slumberd.claim(new_id, own)) THEN
    INSERT INTO slumberd.episodes (shard, id, scope_key, content, timestamp, metadata)
    VALUES (own, new_id, new_key, new_content, new_timestamp, new_metadata);
    RETURN 'new';
  END IF;
  SELECT * INTO stored FROM slumberd.episodes
  WHERE shard = own AND id = new_id AND scope_key = new_key
  FOR UPDATE;
  IF NOT FOUND THEN
    RETURN 'taken';
  END IF;
  IF stored.timestamp = new_timestamp
    AND slumberd.means_the_same(stored.content, new_content)
    AND slumberd.means_the_same(stored.metadata, new_metadata) THEN
    RETURN 'unchanged';
  END IF;
  UPDATE slumberd.episodes
  SET content = new_content, timestamp = new_timestamp, metadata = new_metadata
  WHERE shard = own AND id = new_id;
  RETURN 'changed';
END
$$;

CREATE FUNCTION slumberd.put(
  ids text[], scope_keys text[], contents bytea[], timestamps text[], metadatas bytea[]
) RETURNS text[]
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
  outcomes text[] := '{}';
  is_new boolean[] := '{}';
  nth integer;
  shards bigint;
  own smallint[];
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
  IF cardinality(ids) > 1
    AND NOT EXISTS (SELECT 1 FROM slumberd.erasure_key)
    AND NOT EXISTS (SELECT 1 FROM slumberd.episode_ids WHERE id = ANY (ids))
    AND cardinality(ids) = (SELECT count(DISTINCT id) FROM unnest(ids) AS given(id)) THEN
    -- The usual case: all are new. Another transaction may put one of them meanwhile.
    SELECT count(*) INTO shards FROM slumberd.shards;
    own := ARRAY(
      SELECT slumberd.shard_among(shards, scope_key)
      FROM unnest(scope_keys) WITH ORDINALITY AS given(scope_key, n) ORDER BY n
    );
    -- Everybody locks ids in the same order, so that nobody waits in a circle.
    INSERT INTO slumberd.episode_ids (id, shard)
    SELECT id, shard FROM unnest(ids, own) AS given(id, shard) ORDER BY id COLLATE "C";
    INSERT INTO slumberd.episodes (shard, id, scope_key, content, timestamp, metadata)
    SELECT shard, id, scope_key, content, timestamp, metadata
    FROM unnest(own, ids, scope_keys, contents, timestamps, metadatas) WITH ORDINALITY
      AS given(shard, id, scope_key, content, timestamp, metadata, n)
    ORDER BY n;
    RETURN array_fill('new'::text, ARRAY[cardinality(ids)]);
  END IF;
  IF cardinality(ids) > 1 THEN
    -- In the same order, too.
    FOR nth IN
      SELECT DISTINCT ON (id COLLATE "C") n
      FROM unnest(ids, scope_keys, timestamps) WITH ORDINALITY
        AS given(id, scope_key, timestamp, n)
      WHERE NOT slumberd.is_erased(scope_key, timestamp)
      ORDER BY id COLLATE "C", n
    LOOP
      is_new[nth] := slumberd.claim(ids[nth], slumberd.shard_of(scope_keys[nth]));
    END LOOP;
  END IF;
  FOR place IN 1 .. cardinality(ids) LOOP
    outcomes := outcomes || slumberd.put_one(
      ids[place], scope_keys[place], contents[place], timestamps[place], metadatas[place],
      is_new[place]
    );
  END LOOP;
  RETURN outcomes;
END
$$;
COMMENT ON FUNCTION slumberd.put IS
  'Puts episodes. Returns for each: new, changed, unchanged, taken (another scope has the id) or '
  'erased (its scope was erased). The episodes exist if the transaction commits.';

CREATE FUNCTION slumberd.create_shards(wanted integer) RETURNS void
LANGUAGE plpgsql
AS $$
BEGIN
  FOR one IN 0 .. wanted - 1 LOOP
    INSERT INTO slumberd.shards (shard) VALUES (one);
    INSERT INTO slumberd.log_ends (shard) VALUES (one);
    INSERT INTO slumberd.numbers (shard, name, value)
    VALUES (one, 'epoch', 0), (one, 'logged', 0), (one, 'key', 0), (one, 'ours', 0),
      (one, 'depth', 8);
    EXECUTE format(
      'CREATE TABLE slumberd.episodes_%1$s PARTITION OF slumberd.episodes FOR VALUES IN (%1$s)', one);
    EXECUTE format(
      'CREATE TABLE slumberd.episode_log_%1$s PARTITION OF slumberd.episode_log FOR VALUES IN (%1$s)',
      one);
    EXECUTE format(
      'CREATE TABLE slumberd.facts_%1$s PARTITION OF slumberd.facts FOR VALUES IN (%1$s)'
      ' WITH (fillfactor = 90)', one);
    EXECUTE format(
      'CREATE TABLE slumberd.keys_%1$s PARTITION OF slumberd.keys FOR VALUES IN (%1$s)'
      ' WITH (fillfactor = 80)', one);
    EXECUTE format(
      'CREATE TABLE slumberd.ledger_%1$s PARTITION OF slumberd.ledger FOR VALUES IN (%1$s)', one);
  END LOOP;
END
$$;

-- Readers

-- The users that a login may read. A login without a row reads the user that it names by
-- SET slumberd.tenant, which any program of that login can change.
CREATE TABLE slumberd.reader_users (
  login name NOT NULL,
  "user" text COLLATE "C" NOT NULL,
  PRIMARY KEY (login, "user")
);

CREATE FUNCTION slumberd.may_read(wanted text) RETURNS boolean
LANGUAGE sql STABLE STRICT SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $$
  SELECT CASE
    WHEN EXISTS (SELECT 1 FROM slumberd.reader_users WHERE login = session_user)
    THEN EXISTS (
      SELECT 1 FROM slumberd.reader_users WHERE login = session_user AND "user" = wanted
    )
    ELSE wanted = current_setting('slumberd.tenant', true)
  END
$$;

ALTER TABLE slumberd.facts ENABLE ROW LEVEL SECURITY;
ALTER TABLE slumberd.facts FORCE ROW LEVEL SECURITY;
CREATE POLICY writers ON slumberd.facts TO slumberd_owner, slumberd_daemon
  USING (true) WITH CHECK (true);
CREATE POLICY readers ON slumberd.facts FOR SELECT TO slumberd_reader
  USING (slumberd.may_read("user"));

ALTER TABLE slumberd.episodes ENABLE ROW LEVEL SECURITY;
ALTER TABLE slumberd.episodes FORCE ROW LEVEL SECURITY;
CREATE POLICY writers ON slumberd.episodes TO slumberd_owner, slumberd_daemon
  USING (true) WITH CHECK (true);
CREATE POLICY readers ON slumberd.episodes FOR SELECT TO slumberd_reader
  USING (slumberd.may_read(
    replace(replace(split_part(scope_key, '/', 3), '%2F', '/'), '%25', '%')
  ));
