-- name: winners_between
SELECT k.key, k.slot, k.winner_fact, k.winner_at, k.winner_rank, k.winner_id, k.winner_part, f.payload
FROM slumberd_keys AS k
JOIN facts AS f ON f.fact_id = k.winner_fact
WHERE k.key >= :low
  AND k.key < :high
ORDER BY k.winner_at DESC, k.winner_rank DESC, k.winner_id DESC, k.winner_part DESC
LIMIT :most
