-- name: winners_between
WITH winners AS (
  SELECT k.key, k.slot, k.winner_fact AS fact_id, k.winner_at, k.winner_rank, k.winner_id,
    k.winner_part AS part, k.replaced
  FROM slumberd_keys AS k
  WHERE left(k.key, 256) >= left(:low, 256)
    AND left(k.key, 256) <= left(:high, 256)
    AND k.key >= :low
    AND k.key < :high
),
current AS (
  SELECT key, slot, fact_id, winner_at, winner_rank, winner_id, part
  FROM winners
  UNION ALL
  SELECT w.key, w.slot, sibling.value ->> 1, w.winner_at, w.winner_rank, w.winner_id,
    CAST(sibling.value ->> 0 AS bigint)
  FROM winners AS w
  CROSS JOIN LATERAL json_array_elements(
    CASE
      WHEN get_byte(w.replaced, 0) = 123 THEN convert_from(w.replaced, 'UTF8')::json -> 'siblings'
    END
  ) AS sibling
)
SELECT c.key, c.slot, c.fact_id, c.winner_at, c.winner_rank, c.winner_id, c.part, f.payload
FROM current AS c
INNER JOIN facts AS f
  ON f.fact_id = c.fact_id
ORDER BY c.winner_at DESC, c.winner_rank DESC, c.winner_id DESC, c.part DESC
LIMIT :most

