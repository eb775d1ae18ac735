-- Firings may be resolved under a later law than 1. A slumberd that knows only step 1 would resolve
-- them under law 1, so it must not work on this schema.

COMMENT ON COLUMN slumberd.ledger.payload IS
  'JSON. That of a firing names the law that it was resolved under; without a name it is law 1.';

-- An episode may be erased by its id. The list of erased scopes then has a hash of its user and id.

CREATE FUNCTION slumberd.is_erased_episode(scope_key text, eid text) RETURNS boolean
LANGUAGE plpgsql STABLE
AS $$
DECLARE
  hmac_key bytea;
  owner text := replace(replace(split_part(scope_key, '/', 3), '%2F', '/'), '%25', '%');
BEGIN
  SELECT key INTO hmac_key FROM slumberd.erasure_key;
  IF hmac_key IS NULL THEN
    RETURN false;
  END IF;
  RETURN EXISTS (
    SELECT 1 FROM slumberd.erased_scopes
    WHERE digest = slumberd.keyed_digest(
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
COMMENT ON FUNCTION slumberd.is_erased_episode IS
  'Whether an episode of the user of a scope was erased by its id, so that it must not come back.';

CREATE OR REPLACE FUNCTION slumberd.put_one(
  new_id text, new_key text, new_content bytea, new_timestamp text, new_metadata bytea,
  is_claimed boolean DEFAULT NULL
) RETURNS text
LANGUAGE plpgsql
AS $$
DECLARE
  own smallint := slumberd.shard_of(new_key);
  stored slumberd.episodes%ROWTYPE;
BEGIN
  IF slumberd.is_erased_episode(new_key, new_id) THEN
    RETURN 'erased_id';
  END IF;
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

CREATE OR REPLACE FUNCTION slumberd.put(
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
        AND NOT slumberd.is_erased_episode(scope_key, id)
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
  'Puts episodes. Returns for each: new, changed, unchanged, taken (another scope has the id), '
  'erased (its scope was erased) or erased_id (it was erased by its id). The episodes exist if the '
  'transaction commits.';

-- What language models were asked, with each episode whose words or facts a request holds.
CREATE TABLE slumberd.model_requests (
  shard smallint NOT NULL,
  eid text COLLATE "C" NOT NULL,
  id text COLLATE "C" NOT NULL,
  scope_key text COLLATE "C" NOT NULL,
  key text NOT NULL,
  request text NOT NULL,
  PRIMARY KEY (shard, eid, id)
);
CREATE INDEX model_requests_id ON slumberd.model_requests (shard, id);
COMMENT ON TABLE slumberd.model_requests IS
  'Requests to language models. The row of an episode that was asked about has the key of its answer.';
