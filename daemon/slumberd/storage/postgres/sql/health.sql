-- name: count_episodes
SELECT count(*)
FROM slumberd.episodes
WHERE shard = :shard

-- name: count_facts
SELECT count(*)
FROM slumberd.facts
WHERE shard = :shard

-- name: is_held
SELECT held_until > clock_timestamp()
FROM slumberd.shards
WHERE shard = :shard

-- name: migrated_to
SELECT max(version)
FROM slumberd.store_migrations
WHERE store = ?
