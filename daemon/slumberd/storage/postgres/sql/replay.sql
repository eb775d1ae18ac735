-- name: changing_firings
SELECT firings.n, firings.at, firings.rule, own.payload
FROM slumberd_firings AS firings
INNER JOIN slumberd_ledger AS own
  ON own.seq = firings.n
WHERE position('"forgets":'::bytea IN own.payload) > 0
  OR position('"multi_valued":'::bytea IN own.payload) > 0
  OR firings.rule = '@law'
ORDER BY firings.n
