-- name: changing_firings
SELECT firings.n, firings.at, firings.rule, own.payload
FROM slumberd.firings AS firings
INNER JOIN slumberd.ledger AS own
  ON firings.shard = :shard
  AND own.shard = :shard
  AND own.seq = firings.n
WHERE position('"forgets":'::bytea IN own.payload) > 0
  OR position('"multi_valued":'::bytea IN own.payload) > 0
  OR firings.rule = '@law'
ORDER BY firings.n

-- name: first_erased
SELECT firing
FROM slumberd.ledger
WHERE shard = :shard
  AND salt IS NULL
ORDER BY seq
LIMIT 1
