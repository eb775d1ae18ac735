-- What the daemons of all shards share: the map of the shards, the hosts, and the published rules.

CREATE TABLE slumberd.migrations (
  number integer PRIMARY KEY,
  name text NOT NULL,
  applied_at timestamptz NOT NULL DEFAULT clock_timestamp(),
  works_with integer NOT NULL
);
COMMENT ON COLUMN slumberd.migrations.works_with IS
  'A slumberd whose newest step has at least this number works on the schema after this step.';

-- Where each shard lies: in the schema "slumberd_NUMBER" of this database, or of another one.
CREATE TABLE slumberd.shards (
  number smallint PRIMARY KEY,
  address text
);
COMMENT ON COLUMN slumberd.shards.address IS
  'The address of the database without a password; null for the database of the map.';

-- A user has a position, which is a hash of the name, and lies in the shard of the position.
CREATE TABLE slumberd.positions (
  position smallint PRIMARY KEY,
  shard smallint NOT NULL REFERENCES slumberd.shards,
  moves_to smallint REFERENCES slumberd.shards
);
COMMENT ON COLUMN slumberd.positions.moves_to IS
  'The new shard that gets the position, until the users of the position are named.';

-- The users who do not lie in the shard of their position, and those who are being moved.
CREATE TABLE slumberd.users (
  "user" text COLLATE "C" NOT NULL,
  digest bytea PRIMARY KEY
    GENERATED ALWAYS AS (sha256(decode(replace("user", E'\\', E'\\\\'), 'escape'))) STORED,
  shard smallint NOT NULL REFERENCES slumberd.shards,
  moving_to smallint REFERENCES slumberd.shards,
  planned_for smallint REFERENCES slumberd.shards,
  since timestamptz NOT NULL DEFAULT clock_timestamp()
);
CREATE INDEX users_moving ON slumberd.users (shard)
  WHERE moving_to IS NOT NULL OR planned_for IS NOT NULL;
COMMENT ON COLUMN slumberd.users.planned_for IS
  'The shard that the user is to move to; the daemon of its shard moves one user after the other.';

-- The key of the hashes of erased scopes, which all shards use.
CREATE TABLE slumberd.erasure_key (
  id integer PRIMARY KEY CHECK (id = 1),
  key bytea NOT NULL
);

CREATE FUNCTION slumberd.find_users(names text[])
RETURNS TABLE (name text, shard smallint, moving_to smallint)
LANGUAGE sql STABLE SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $$
  SELECT wanted.name, coalesce(users.shard, positions.shard), users.moving_to
  FROM unnest(names) AS wanted(name)
  LEFT JOIN slumberd.users AS users
    ON users.digest = sha256(decode(replace(wanted.name, E'\\', E'\\\\'), 'escape'))
  LEFT JOIN slumberd.positions AS positions
    ON positions.position = (
      (
        'x' || encode(substr(sha256(convert_to(
          '/user/' || replace(replace(wanted.name, '%', '%25'), '/', '%2F') || '/', 'UTF8'
        )), 1, 4), 'hex')
      )::bit(32)::bigint % 1024
    )
$$;
COMMENT ON FUNCTION slumberd.find_users IS
  'The shard of each user; a user who is being moved has the shard that is left, and the next one.';

CREATE FUNCTION slumberd.list_shards() RETURNS TABLE (number smallint, address text)
LANGUAGE sql STABLE SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $$ SELECT number, address FROM slumberd.shards ORDER BY number $$;

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
