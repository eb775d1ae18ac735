-- name: first_erased
SELECT firing
FROM slumberd_ledger
WHERE salt IS NULL
ORDER BY seq
LIMIT 1
