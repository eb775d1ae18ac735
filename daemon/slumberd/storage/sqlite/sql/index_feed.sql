-- name: create_table
CREATE TABLE slumberd_episode_deletions (
  number INTEGER PRIMARY KEY AUTOINCREMENT,
  rid INTEGER
)

-- name: create_delete_trigger
CREATE TRIGGER slumberd_episode_deleted
AFTER DELETE ON episodes
BEGIN
  INSERT INTO slumberd_episode_deletions (rid)
  VALUES (OLD.rowid);
  DELETE FROM slumberd_episode_deletions
  WHERE number <= (SELECT max(number) FROM slumberd_episode_deletions) - 10000;
END

-- name: drop_delete_trigger
DROP TRIGGER IF EXISTS slumberd_episode_deleted

-- name: record_unknown_deletions
INSERT INTO slumberd_episode_deletions (rid)
VALUES (NULL)

-- name: rows_of
SELECT rowid, id
FROM episodes
WHERE id IN (SELECT value FROM json_each(:ids))

-- name: ids_of_rows
-- texts: lenient
SELECT DISTINCT eid
FROM slumberd_episode_log
WHERE rid IN (SELECT value FROM json_each(:rids))
