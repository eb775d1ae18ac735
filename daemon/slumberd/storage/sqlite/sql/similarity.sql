-- name: winners_between
SELECT k.key, k.slot, k.winner_fact, k.winner_at AS at, k.winner_rank AS rank, k.winner_id AS id,
  k.winner_part AS part, f.payload
FROM slumberd_keys AS k
JOIN facts AS f ON f.fact_id = k.winner_fact
WHERE k.key >= :low
  AND k.key < :high
UNION ALL
SELECT k.key, k.slot, f.fact_id, k.winner_at, k.winner_rank, k.winner_id,
  json_extract(sibling.value, '$[0]'), f.payload
FROM slumberd_keys AS k
CROSS JOIN json_each(CAST(k.replaced AS TEXT), '$.siblings') AS sibling
CROSS JOIN facts AS f ON f.fact_id = json_extract(sibling.value, '$[1]')
WHERE k.key >= :low
  AND k.key < :high
ORDER BY at DESC, rank DESC, id DESC, part DESC
LIMIT :most
