-- name: create_rules
CREATE TABLE IF NOT EXISTS rules (
  rule_id TEXT PRIMARY KEY,
  served TEXT NOT NULL
) STRICT

-- name: create_firings
CREATE TABLE IF NOT EXISTS firings (
  number INTEGER PRIMARY KEY AUTOINCREMENT,
  rule_id TEXT NOT NULL UNIQUE,
  at TEXT NOT NULL,
  applied INTEGER
) STRICT

-- name: create_deltas
CREATE TABLE IF NOT EXISTS deltas (
  number INTEGER PRIMARY KEY AUTOINCREMENT,
  rule_id TEXT NOT NULL,
  digest BLOB NOT NULL,
  done INTEGER NOT NULL,
  UNIQUE (rule_id, digest)
) STRICT

-- name: create_facts
CREATE TABLE IF NOT EXISTS facts (
  rule_id TEXT NOT NULL,
  fact_id TEXT NOT NULL,
  digest BLOB,
  PRIMARY KEY (rule_id, fact_id)
) STRICT, WITHOUT ROWID

-- name: served
SELECT
  rule_id,
  served
FROM rules

-- name: begin_rule
INSERT INTO rules (rule_id, served)
VALUES (:rule_id, :served)
ON CONFLICT DO NOTHING

-- name: serve
UPDATE rules
SET served = :served
WHERE rule_id = :rule_id

-- name: begin_firing
INSERT OR REPLACE INTO firings (rule_id, at)
VALUES (:rule_id, :at)
RETURNING number

-- name: end_firing
UPDATE firings
SET applied = :applied
WHERE rule_id = :rule_id

-- name: firings
SELECT
  rule_id,
  number,
  at,
  applied
FROM firings
ORDER BY rule_id

-- name: unended
SELECT count(*)
FROM firings
WHERE rule_id = :rule_id
  AND applied IS NULL

-- name: deltas
SELECT
  digest,
  done
FROM deltas
WHERE rule_id = :rule_id

-- name: facts
SELECT
  fact_id,
  digest
FROM facts
WHERE rule_id = :rule_id

-- name: number_in_doubt
SELECT number
FROM deltas
WHERE rule_id = :rule_id
  AND digest = :digest
  AND done = 0

-- name: begin_delta
INSERT OR REPLACE INTO deltas (rule_id, digest, done)
VALUES (:rule_id, :digest, 0)
RETURNING number

-- name: end_delta
UPDATE deltas
SET done = 1
WHERE number = :number

-- name: set_fact
INSERT OR REPLACE INTO facts (rule_id, fact_id, digest)
VALUES (:rule_id, :fact_id, :digest)

-- name: drop_delta
DELETE FROM deltas
WHERE rule_id = :rule_id
  AND digest = :digest

-- name: drop_fact
DELETE FROM facts
WHERE rule_id = :rule_id
  AND fact_id = :fact_id

-- name: count_deltas
SELECT
  rule_id,
  count(*) AS known,
  count(*) FILTER (WHERE done = 0) AS in_doubt
FROM deltas
GROUP BY rule_id
