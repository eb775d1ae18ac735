-- What each role may do in the schema of the map; it runs after every migration.

GRANT USAGE ON SCHEMA slumberd TO slumberd_daemon, slumberd_host, slumberd_reader;
REVOKE EXECUTE ON ALL FUNCTIONS IN SCHEMA slumberd FROM PUBLIC;

GRANT SELECT ON ALL TABLES IN SCHEMA slumberd TO slumberd_daemon;
GRANT INSERT, UPDATE, DELETE ON slumberd.users, slumberd.hosts TO slumberd_daemon;
GRANT INSERT ON slumberd.rule_sets TO slumberd_daemon;

GRANT EXECUTE ON FUNCTION slumberd.find_users(text[]), slumberd.list_shards()
  TO slumberd_daemon, slumberd_host, slumberd_reader;
