-- name: holder
SELECT
  CASE WHEN held_until >= clock_timestamp() THEN holder END,
  CASE
    WHEN held_until >= clock_timestamp() THEN extract(epoch FROM held_until - clock_timestamp())
    ELSE 0
  END::double precision,
  CASE
    WHEN held_until >= clock_timestamp() THEN 0
    ELSE extract(epoch FROM clock_timestamp() - greatest(held_until, pg_postmaster_start_time()))
  END::double precision
FROM lease

-- name: hosts
SELECT name, extract(epoch FROM clock_timestamp() - seen_at)::double precision, state::text
FROM slumberd.hosts
ORDER BY name

-- name: inbox
SELECT count(*), coalesce(extract(epoch FROM clock_timestamp() - min(put_at)), 0)::double precision
FROM (
  SELECT put_at
  FROM inbox
  ORDER BY n
  LIMIT 100000
) AS waiting

-- name: open_requests
SELECT count(*)
FROM requests
WHERE answered_at IS NULL

-- name: oldest_transaction
SELECT transactions.name, extract(epoch FROM clock_timestamp() - began)::double precision, xids
FROM (
  SELECT format('process %s of %s', pid, coalesce(nullif(application_name, ''), usename)) AS name,
    xact_start AS began, greatest(age(backend_xid), age(backend_xmin)) AS xids
  FROM pg_stat_activity
  WHERE (datname = current_database() OR datname IS NULL)
    AND usesysid IS NOT NULL
    AND pid != pg_backend_pid()
  UNION ALL
  SELECT format('prepared transaction %s', quote_literal(gid)), prepared, age(transaction)
  FROM pg_prepared_xacts
  WHERE database = current_database()
  UNION ALL
  SELECT format('replication slot %s', quote_literal(slot_name)), NULL, age(xmin)
  FROM pg_replication_slots
) AS transactions
WHERE xids IS NOT NULL
ORDER BY CASE WHEN xids > :xids THEN 1 ELSE 2 END, began NULLS LAST, xids DESC
LIMIT 1

-- name: dead_rows
SELECT format('%s.%s', schemaname, relname), n_live_tup, n_dead_tup
FROM pg_stat_user_tables
WHERE schemaname ~ '^slumberd(_[0-9]+|)$'
  AND n_dead_tup > :rows
  AND n_dead_tup > 2 * n_live_tup
ORDER BY 1

-- name: server
SELECT split_part(current_setting('server_version'), ' ', 1),
  (
    SELECT max(greatest(age(datfrozenxid), mxid_age(datminmxid)))::bigint
    FROM pg_database
    WHERE datallowconn
  ),
  current_setting('fsync') = 'on' AND current_setting('synchronous_commit') != 'off',
  pg_is_in_recovery() OR current_setting('default_transaction_read_only') = 'on',
  (
    SELECT coalesce(sum(pg_table_size(tables.oid) + pg_indexes_size(tables.oid)), 0)::bigint
    FROM pg_class AS tables
    INNER JOIN pg_namespace AS schemas ON schemas.oid = tables.relnamespace
    WHERE schemas.nspname ~ '^slumberd(_[0-9]+|)$' AND tables.relkind = 'r'
  )

-- name: open_snapshots
SELECT format('%s/%s', activity.pid, coalesce(locks.virtualtransaction, activity.backend_start::text)),
  format(
    'process %s of login %s%s',
    activity.pid,
    activity.usename,
    ' (' || nullif(activity.application_name, '') || ')'
  ),
  extract(epoch FROM clock_timestamp() - activity.xact_start)::double precision
FROM pg_stat_activity AS activity
LEFT JOIN pg_locks AS locks
  ON locks.pid = activity.pid AND locks.locktype = 'virtualxid' AND locks.mode = 'ExclusiveLock'
WHERE (activity.datname = current_database() OR activity.datname IS NULL)
  AND activity.usesysid IS NOT NULL
  AND activity.pid != pg_backend_pid()
  AND (
    activity.backend_xmin IS NOT NULL
    OR activity.backend_xid IS NOT NULL
    -- The server hides the snapshots of other logins from a login without `pg_read_all_stats`.
    OR (activity.state IS NULL AND locks.virtualtransaction IS NOT NULL)
  )
UNION ALL
SELECT format('prepared/%s', gid), format('prepared transaction %s', quote_literal(gid)),
  extract(epoch FROM clock_timestamp() - prepared)::double precision
FROM pg_prepared_xacts
WHERE database = current_database()
UNION ALL
SELECT format('slot/%s', slot_name), format('replication slot %s', quote_literal(slot_name)), NULL
FROM pg_replication_slots
WHERE xmin IS NOT NULL
ORDER BY 3 DESC NULLS LAST, 1
