CREATE INDEX slumberd_facts_object ON facts (
  CASE WHEN json_valid(CAST(payload AS TEXT))
    THEN json_extract(CAST(payload AS TEXT), '$.object') END
);

CREATE INDEX slumberd_facts_owner ON facts (user, agent, fact_id);

CREATE INDEX slumberd_facts_sp ON facts (
  CASE WHEN json_valid(CAST(payload AS TEXT))
    THEN json_extract(CAST(payload AS TEXT), '$.subject') END,
  CASE WHEN json_valid(CAST(payload AS TEXT))
    THEN json_extract(CAST(payload AS TEXT), '$.predicate') END
);

CREATE INDEX slumberd_firings_rule ON slumberd_firings (rule, n);

CREATE INDEX slumberd_ledger_erased ON slumberd_ledger (seq) WHERE salt IS NULL;

CREATE INDEX slumberd_ledger_fact ON slumberd_ledger (fact_id) WHERE fact_id IS NOT NULL;

CREATE INDEX slumberd_ledger_key ON slumberd_ledger (key_id) WHERE key_id IS NOT NULL;

CREATE INDEX slumberd_ledger_without_key ON slumberd_ledger (what) WHERE what IN (2, 3, 8);

CREATE TABLE facts (
  fact_id TEXT PRIMARY KEY,
  user TEXT NOT NULL,
  agent TEXT NOT NULL,
  payload BLOB NOT NULL,
  lineage BLOB NOT NULL,
  confidence REAL NOT NULL,
  metadata BLOB NOT NULL,
  pinned_at TEXT NOT NULL
);

CREATE TABLE slumberd_channels (
  seq INTEGER PRIMARY KEY,
  multi_valued BLOB NOT NULL
) STRICT;

CREATE TABLE slumberd_external_changes (
  fact_id TEXT PRIMARY KEY
) WITHOUT ROWID;

CREATE TABLE slumberd_firings (
  n INTEGER PRIMARY KEY,
  rule TEXT NOT NULL,
  rule_hash TEXT NOT NULL,
  cause TEXT NOT NULL,
  at INTEGER NOT NULL,
  last_seq INTEGER NOT NULL,
  generation INTEGER NOT NULL,
  upto_seq INTEGER NOT NULL,
  upto_eid TEXT NOT NULL,
  counts BLOB NOT NULL
) STRICT;

CREATE TABLE slumberd_generations (
  generation INTEGER PRIMARY KEY,
  after INTEGER NOT NULL
) STRICT;

CREATE TABLE slumberd_held_batches (
  rule TEXT PRIMARY KEY,
  n INTEGER NOT NULL,
  upto_seq INTEGER NOT NULL,
  upto_eid TEXT NOT NULL,
  problem TEXT NOT NULL,
  approved INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE slumberd_keys (
  key TEXT NOT NULL,
  slot TEXT NOT NULL,
  key_id INTEGER NOT NULL,
  winner_at INTEGER,
  winner_rank INTEGER,
  winner_id TEXT,
  winner_part INTEGER,
  winner_fact TEXT,
  winner_object TEXT,
  retractions BLOB,
  replaced BLOB,
  PRIMARY KEY (key, slot)
) STRICT, WITHOUT ROWID;

CREATE TABLE slumberd_ledger (
  seq INTEGER PRIMARY KEY,
  delta INTEGER NOT NULL,
  firing INTEGER NOT NULL,
  what INTEGER NOT NULL,
  kind INTEGER NOT NULL,
  reason TEXT NOT NULL,
  version INTEGER NOT NULL,
  key_id INTEGER,
  at INTEGER,
  fact_id TEXT,
  replaces TEXT,
  salt BLOB,
  payload BLOB,
  commitment BLOB NOT NULL,
  chain BLOB NOT NULL
) STRICT;

CREATE TABLE slumberd_numbers (
  name TEXT PRIMARY KEY,
  value INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE slumberd_quarantine (
  rule TEXT NOT NULL,
  channel TEXT NOT NULL,
  eid TEXT NOT NULL,
  version INTEGER NOT NULL,
  owner TEXT NOT NULL,
  reason TEXT NOT NULL,
  detail TEXT NOT NULL,
  seq INTEGER NOT NULL,
  PRIMARY KEY (rule, channel, eid)
) STRICT, WITHOUT ROWID;

CREATE TABLE slumberd_references (
  referenced TEXT NOT NULL,
  referrer TEXT NOT NULL,
  PRIMARY KEY (referenced, referrer)
) STRICT, WITHOUT ROWID;

CREATE TABLE slumberd_schema (
  component TEXT PRIMARY KEY,
  version INTEGER NOT NULL
);

CREATE TABLE slumberd_successes (
  rule TEXT PRIMARY KEY,
  at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE slumberd_unfinished_erasures (
  scope TEXT PRIMARY KEY,
  eids BLOB NOT NULL,
  moment INTEGER NOT NULL,
  by TEXT NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE slumberd_watermark (
  rule TEXT PRIMARY KEY,
  seq INTEGER NOT NULL,
  eid TEXT NOT NULL,
  served INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TRIGGER slumberd_facts_deleted AFTER DELETE ON facts
WHEN (SELECT value FROM slumberd_numbers WHERE name = 'ours') IS NOT 1
BEGIN
  INSERT INTO slumberd_external_changes (fact_id)
  VALUES (ifnull(OLD.fact_id, ''))
  ON CONFLICT DO NOTHING;
END;

CREATE TRIGGER slumberd_facts_inserted AFTER INSERT ON facts
WHEN (SELECT value FROM slumberd_numbers WHERE name = 'ours') IS NOT 1
BEGIN
  INSERT INTO slumberd_external_changes (fact_id)
  VALUES (ifnull(NEW.fact_id, ''))
  ON CONFLICT DO NOTHING;
END;

CREATE TRIGGER slumberd_facts_updated AFTER UPDATE ON facts
WHEN (SELECT value FROM slumberd_numbers WHERE name = 'ours') IS NOT 1
BEGIN
  INSERT INTO slumberd_external_changes (fact_id)
  VALUES (ifnull(OLD.fact_id, '')), (ifnull(NEW.fact_id, ''))
  ON CONFLICT DO NOTHING;
END;
