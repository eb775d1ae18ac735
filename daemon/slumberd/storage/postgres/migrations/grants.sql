-- What each role may do; it runs after every migration.

GRANT USAGE ON SCHEMA slumberd TO slumberd_daemon, slumberd_host, slumberd_reader;
REVOKE EXECUTE ON ALL FUNCTIONS IN SCHEMA slumberd FROM PUBLIC;

GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA slumberd TO slumberd_daemon;
REVOKE INSERT, UPDATE, DELETE ON slumberd.migrations FROM slumberd_daemon;
REVOKE UPDATE, DELETE ON slumberd.rule_sets FROM slumberd_daemon;
GRANT USAGE ON ALL SEQUENCES IN SCHEMA slumberd TO slumberd_daemon;
GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA slumberd TO slumberd_daemon;
REVOKE EXECUTE ON FUNCTION slumberd.create_shards(integer) FROM slumberd_daemon;

GRANT EXECUTE ON FUNCTION slumberd.put(text[], text[], bytea[], text[], bytea[])
  TO slumberd_host;

GRANT SELECT ON slumberd.facts, slumberd.episodes TO slumberd_reader;
GRANT EXECUTE ON FUNCTION slumberd.may_read(text), slumberd.as_jsonb(bytea) TO slumberd_reader;
