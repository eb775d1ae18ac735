-- name: shards
SELECT shard, CASE WHEN held_until >= clock_timestamp() THEN holder END,
  CASE
    WHEN held_until >= clock_timestamp() THEN 0
    ELSE extract(epoch FROM clock_timestamp() - greatest(held_until, pg_postmaster_start_time()))
  END::double precision
FROM slumberd.shards
ORDER BY shard

-- name: hosts
SELECT name, extract(epoch FROM clock_timestamp() - seen_at)::double precision, state::text
FROM slumberd.hosts
ORDER BY name

-- name: unnumbered
SELECT count(*)
FROM (
  SELECT 1
  FROM slumberd.inbox
  LIMIT 100000
) AS waiting

-- name: open_requests
SELECT count(*)
FROM slumberd.requests
WHERE answered_at IS NULL

-- name: oldest_transaction
SELECT coalesce(max(extract(epoch FROM clock_timestamp() - began)), 0)::double precision
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

-- name: server
SELECT (SELECT max(age(datfrozenxid))::bigint FROM pg_database),
  current_setting('fsync') = 'on' AND current_setting('synchronous_commit') != 'off',
  pg_is_in_recovery()
