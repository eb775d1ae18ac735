-- name: pending
SELECT name, value
FROM slumberd_numbers
WHERE name >= 'rewrite/'
  AND name < 'rewrite0'
ORDER BY name

-- name: finish
DELETE FROM slumberd_numbers
WHERE name = ?
