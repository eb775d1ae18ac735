-- Who may do what. Grant a role to the login of a program: GRANT slumberd_daemon TO my_login.
--   slumberd_owner   owns the schema; nobody logs in as it
--   slumberd_daemon  reads and writes everything, and changes the form of no table
--   slumberd_host    the host of an agent: may only put
--   slumberd_reader  reads facts and episodes of the users that it may read

DO $$
DECLARE
  one text;
BEGIN
  FOREACH one IN ARRAY ARRAY['slumberd_owner', 'slumberd_daemon', 'slumberd_host', 'slumberd_reader']
  LOOP
    IF NOT EXISTS (SELECT 1 FROM pg_catalog.pg_roles WHERE rolname = one) THEN
      BEGIN
        EXECUTE format('CREATE ROLE %I NOLOGIN NOINHERIT', one);
      EXCEPTION WHEN duplicate_object OR unique_violation THEN
        NULL;  -- another database of the server has just created it
      END;
    END IF;
  END LOOP;
  IF NOT pg_catalog.pg_has_role('slumberd_owner', 'MEMBER') THEN
    GRANT slumberd_owner TO CURRENT_USER;
  END IF;
  -- The daemon becomes the owner only where it says so: to rewrite tables after an erasure.
  IF NOT pg_catalog.pg_has_role('slumberd_daemon', 'slumberd_owner', 'MEMBER') THEN
    GRANT slumberd_owner TO slumberd_daemon;
  END IF;
END
$$;
