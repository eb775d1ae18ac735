-- name: standing_of_family
SELECT k.key, k.slot, k.top_fact, k.top_at, k.top_rank, k.top_id, f.payload
FROM slumberd_keys AS k
JOIN facts AS f ON f.fact_id = k.top_fact
WHERE k.key >= :low
  AND k.key < :high
ORDER BY k.top_at DESC, k.top_rank DESC, k.top_id DESC
LIMIT :most
