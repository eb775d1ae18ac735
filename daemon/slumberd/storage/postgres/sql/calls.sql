-- name: is_called
SELECT EXISTS (
  SELECT 1
  FROM slumberd.calls
  WHERE shard = :shard
    AND rule = :rule_id
    AND upto > :after
)

-- name: waiting
SELECT coalesce(sum(logged.rows + unnumbered.rows), 0)::bigint
FROM slumberd.watermark
CROSS JOIN LATERAL (
  SELECT count(*) AS rows
  FROM (
    SELECT 1
    FROM slumberd.episode_log
    WHERE episode_log.shard = watermark.shard
      AND episode_log.seq > watermark.seq
    LIMIT :at_most
  ) AS found
) AS logged
CROSS JOIN LATERAL (
  SELECT count(*) AS rows
  FROM (
    SELECT 1
    FROM slumberd.inbox
    WHERE inbox.shard = watermark.shard
    LIMIT :at_most
  ) AS found
) AS unnumbered
WHERE watermark.rule = :rule_id

-- name: call
INSERT INTO slumberd.calls (shard, rule, upto)
SELECT watermark.shard, watermark.rule, log_ends.seq + (
  SELECT count(*)
  FROM slumberd.inbox
  WHERE inbox.shard = watermark.shard
)
FROM slumberd.watermark
INNER JOIN slumberd.log_ends ON log_ends.shard = watermark.shard
WHERE watermark.rule = :rule_id
ORDER BY watermark.shard
ON CONFLICT (shard, rule) DO UPDATE SET upto = greatest(calls.upto, excluded.upto)
