-- name: count_episodes
SELECT count(*)
FROM episodes

-- name: count_facts
SELECT count(*)
FROM facts

-- name: is_held
SELECT held_until > clock_timestamp()
FROM lease

-- name: migrated_to
SELECT max(version)
FROM store_migrations
WHERE store = ?
