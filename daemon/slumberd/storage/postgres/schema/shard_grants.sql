-- What each role may do in the schema of a shard; it runs after every migration.

GRANT USAGE ON SCHEMA slumberd_0 TO slumberd_daemon, slumberd_host, slumberd_reader;
REVOKE EXECUTE ON ALL FUNCTIONS IN SCHEMA slumberd_0 FROM PUBLIC;

GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA slumberd_0 TO slumberd_daemon;
REVOKE INSERT, UPDATE, DELETE ON slumberd_0.migrations FROM slumberd_daemon;
GRANT USAGE ON ALL SEQUENCES IN SCHEMA slumberd_0 TO slumberd_daemon;
GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA slumberd_0 TO slumberd_daemon;

GRANT EXECUTE ON FUNCTION slumberd_0.put(text[], text[], bytea[], text[], bytea[])
  TO slumberd_host;

GRANT SELECT ON slumberd_0.facts, slumberd_0.episodes TO slumberd_reader;
GRANT EXECUTE ON FUNCTION slumberd_0.may_read(text), slumberd_0.as_jsonb(bytea) TO slumberd_reader;
