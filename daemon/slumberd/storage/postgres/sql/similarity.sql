-- name: winners_between
SELECT k.key, k.slot, k.winner_fact, k.winner_at, k.winner_rank, k.winner_id, k.winner_part, f.payload
FROM slumberd.keys AS k
INNER JOIN slumberd.facts AS f
  ON k.shard = :shard
  AND f.shard = :shard
  AND f.fact_id = k.winner_fact
WHERE left(k.key, 256) >= left(:low, 256)
  AND left(k.key, 256) <= left(:high, 256)
  AND k.key >= :low
  AND k.key < :high
ORDER BY k.winner_at DESC, k.winner_rank DESC, k.winner_id DESC, k.winner_part DESC
LIMIT :most
