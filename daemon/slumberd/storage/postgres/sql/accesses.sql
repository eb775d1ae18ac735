-- name: read
INSERT INTO slumberd_accesses AS known (eid, scope_key, count, last, held)
SELECT episodes.id, episodes.scope_key, noted.count, noted.last, 0
FROM unnest(:noted_1::text[], :noted_2::bigint[], :noted_3::bigint[]) AS noted(eid, count, last)
INNER JOIN episodes ON episodes.id = noted.eid
ON CONFLICT (eid) DO UPDATE SET
  scope_key = excluded.scope_key,
  count = excluded.count
    + CASE WHEN known.scope_key = excluded.scope_key THEN known.count ELSE 0 END,
  last = CASE WHEN known.scope_key = excluded.scope_key
    THEN greatest(known.last, excluded.last)
    ELSE excluded.last END

-- name: log_again
INSERT INTO inbox (rid, eid)
SELECT NULL::bigint, accesses.eid
FROM unnest(:ids::text[]) AS wanted(value)
INNER JOIN slumberd_accesses AS accesses ON accesses.eid = wanted.value
INNER JOIN episodes ON episodes.id = accesses.eid
WHERE accesses.held != 0
