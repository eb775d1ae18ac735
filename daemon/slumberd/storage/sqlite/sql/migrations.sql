-- name: create_migrations
CREATE TABLE IF NOT EXISTS _migrations (
  version INTEGER PRIMARY KEY,
  applied_at TEXT NOT NULL
)

-- name: record_migration
INSERT OR IGNORE INTO _migrations (version, applied_at)
VALUES (:version, :at)

-- name: migrated_to
SELECT MAX(version)
FROM _migrations

-- name: columns
SELECT name
FROM pragma_table_info(:name)

-- name: types_of_columns
SELECT name, type
FROM pragma_table_xinfo(?)

-- name: has_migration
SELECT 1
FROM _migrations
WHERE version = :version

-- name: create_schema
CREATE TABLE IF NOT EXISTS slumberd_schema (
  component TEXT PRIMARY KEY,
  version INTEGER NOT NULL
)

-- name: component_version
SELECT version
FROM slumberd_schema
WHERE component = :component

-- name: set_component_version
INSERT INTO slumberd_schema (component, version)
VALUES (:component, :version)
ON CONFLICT (component) DO UPDATE SET version = excluded.version

-- name: own_objects
SELECT objects.type, lower(objects.name), objects.sql, lists.wr, lists.strict
FROM sqlite_master AS objects
LEFT JOIN pragma_table_list AS lists
  ON lists.schema = 'main' AND lists.name = objects.name
WHERE objects.type IN ('table', 'view', 'index')
  AND objects.tbl_name LIKE 'slumberd!_%' ESCAPE '!'
  AND objects.sql IS NOT NULL

-- name: own_columns
SELECT lower(objects.name), columns.name, upper(columns.type), columns."notnull",
  columns.dflt_value, columns.pk, columns.hidden
FROM sqlite_master AS objects
CROSS JOIN pragma_table_xinfo(objects.name) AS columns
WHERE objects.type IN ('table', 'view')
  AND objects.tbl_name LIKE 'slumberd!_%' ESCAPE '!'
ORDER BY objects.name, columns.cid

-- name: file
SELECT file
FROM pragma_database_list
WHERE name = 'main'
