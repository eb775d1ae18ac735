-- name: lock
SELECT value
FROM slumberd_numbers
WHERE name = 'epoch'
FOR UPDATE

-- name: epoch
SELECT value
FROM slumberd_numbers
WHERE name = 'epoch'
