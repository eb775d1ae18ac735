-- name: shards
SELECT shard, holder, held_until >= clock_timestamp(),
  extract(epoch FROM clock_timestamp() - greatest(held_until, pg_postmaster_start_time()))::float8
FROM slumberd.shards
ORDER BY shard

-- name: hosts
SELECT name, extract(epoch FROM clock_timestamp() - seen_at)::float8, state::text
FROM slumberd.hosts
ORDER BY name

-- name: inbox
SELECT count(*)
FROM (
  SELECT 1
  FROM slumberd.inbox
  LIMIT 100000
) AS some

-- name: open_requests
SELECT count(*)
FROM slumberd.requests
WHERE answered_at IS NULL

-- name: oldest_transaction
SELECT coalesce(max(extract(epoch FROM clock_timestamp() - began)), 0)::float8
FROM (
  SELECT xact_start AS began
  FROM pg_stat_activity
  WHERE backend_xmin IS NOT NULL
    AND pid != pg_backend_pid()
  UNION ALL
  SELECT prepared
  FROM pg_prepared_xacts
) AS transactions

-- name: dead_rows
SELECT relname::text, n_live_tup, n_dead_tup
FROM pg_stat_user_tables
WHERE schemaname = 'slumberd'
  AND n_dead_tup > 100000
  AND n_dead_tup > 2 * n_live_tup
ORDER BY relname

-- name: wraparound
SELECT max(age(datfrozenxid))::bigint
FROM pg_database

-- name: settings
SELECT current_setting('fsync'), current_setting('synchronous_commit'), pg_is_in_recovery()
