-- name: begin_own_write
UPDATE slumberd_numbers
SET value = 1
WHERE name = 'ours'

-- name: end_own_write
UPDATE slumberd_numbers
SET value = 0
WHERE name = 'ours'

-- name: drop_insert
DROP TRIGGER IF EXISTS slumberd_facts_inserted

-- name: drop_update
DROP TRIGGER IF EXISTS slumberd_facts_updated

-- name: drop_delete
DROP TRIGGER IF EXISTS slumberd_facts_deleted

-- name: any_change
SELECT EXISTS (
  SELECT 1
  FROM slumberd_external_changes
)

-- name: all_changed_ids
-- texts: escaped
SELECT fact_id
FROM slumberd_external_changes

-- name: changes
-- texts: escaped
SELECT touched.fact_id, facts.rowid
FROM slumberd_external_changes AS touched
LEFT JOIN facts
  ON facts.fact_id = touched.fact_id
  OR (touched.fact_id = '' AND facts.fact_id IS NULL)
ORDER BY facts.rowid IS NOT NULL, facts.pinned_at, touched.fact_id

-- name: row
-- texts: escaped
SELECT fact_id, user, agent, payload, lineage, confidence, metadata, pinned_at
FROM facts
WHERE rowid = ?

-- name: drop_changes
DELETE FROM slumberd_external_changes
