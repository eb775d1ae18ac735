-- name: pending
SELECT name, value
FROM slumberd.numbers
WHERE shard = :shard
  AND name >= 'rewrite/'
  AND name < 'rewrite0'
ORDER BY name

-- name: finish
DELETE FROM slumberd.numbers
WHERE shard = :shard
  AND name = ?
