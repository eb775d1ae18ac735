CREATE INDEX idx_episodes_scope_ts
ON episodes(scope_key, timestamp DESC);

CREATE INDEX slumberd_episode_log_rid ON slumberd_episode_log (rid);

CREATE INDEX slumberd_episodes_by_session
ON episodes(
  CASE
    WHEN substr(substr(CAST(content AS TEXT), instr(CAST(content AS TEXT), ',"user":"')), 1, 9) = ',"user":"'
      AND instr(substr(CAST(content AS TEXT), instr(CAST(content AS TEXT), ',"user":"')), '","session":"') > 0
      AND instr(substr(CAST(content AS TEXT), instr(CAST(content AS TEXT), ',"user":"')), '\u') = 0
      AND length(substr(CAST(content AS TEXT), instr(CAST(content AS TEXT), ',"user":"')))
        - length(replace(substr(CAST(content AS TEXT), instr(CAST(content AS TEXT), ',"user":"')), '":', '')) = 4
    THEN substr(CAST(content AS TEXT), instr(CAST(content AS TEXT), ',"user":"'))
    ELSE ''
  END,
  (
    timestamp GLOB '????-??-??T??:??:??+00:00'
    OR (timestamp GLOB '*T??:??:??.??????+00:00' AND timestamp NOT GLOB '*.000000+00:00')
  ),
  timestamp DESC
)
WHERE scope_key = '/user/anon/session/default/agent/default/'
  OR length(scope_key) - length(replace(scope_key, '/', '')) <> 7;

CREATE INDEX slumberd_episodes_by_user
ON episodes(
  CASE
    WHEN substr(substr(CAST(content AS TEXT), instr(CAST(content AS TEXT), ',"user":"')), 1, 9) = ',"user":"'
      AND instr(substr(CAST(content AS TEXT), instr(CAST(content AS TEXT), ',"user":"')), '","session":"') > 0
      AND instr(substr(CAST(content AS TEXT), instr(CAST(content AS TEXT), ',"user":"')), '\u') = 0
      AND length(substr(CAST(content AS TEXT), instr(CAST(content AS TEXT), ',"user":"')))
        - length(replace(substr(CAST(content AS TEXT), instr(CAST(content AS TEXT), ',"user":"')), '":', '')) = 4
    THEN substr(
      substr(CAST(content AS TEXT), instr(CAST(content AS TEXT), ',"user":"')),
      1,
      instr(substr(CAST(content AS TEXT), instr(CAST(content AS TEXT), ',"user":"')), '","session":"')
    )
    ELSE ''
  END,
  (
    timestamp GLOB '????-??-??T??:??:??+00:00'
    OR (timestamp GLOB '*T??:??:??.??????+00:00' AND timestamp NOT GLOB '*.000000+00:00')
  ),
  timestamp DESC
)
WHERE scope_key = '/user/anon/session/default/agent/default/'
  OR length(scope_key) - length(replace(scope_key, '/', '')) <> 7;

CREATE INDEX slumberd_episodes_other
ON episodes(
  substr(scope_key, 1, 6 + instr(substr(scope_key, 7), '/')),
  substr(
    substr(scope_key, 15 + instr(substr(scope_key, 7), '/')),
    7 + instr(substr(scope_key, 15 + instr(substr(scope_key, 7), '/')), '/')
  ),
  timestamp DESC
)
WHERE NOT (
    timestamp GLOB '????-??-??T??:??:??+00:00'
    OR (timestamp GLOB '*T??:??:??.??????+00:00' AND timestamp NOT GLOB '*.000000+00:00')
  )
  AND scope_key <> '/user/anon/session/default/agent/default/'
  AND length(scope_key) - length(replace(scope_key, '/', '')) = 7;

CREATE INDEX slumberd_episodes_utc
ON episodes(
  substr(scope_key, 1, 6 + instr(substr(scope_key, 7), '/')),
  substr(
    substr(scope_key, 15 + instr(substr(scope_key, 7), '/')),
    7 + instr(substr(scope_key, 15 + instr(substr(scope_key, 7), '/')), '/')
  ),
  timestamp DESC
)
WHERE scope_key <> '/user/anon/session/default/agent/default/'
  AND length(scope_key) - length(replace(scope_key, '/', '')) = 7
  AND (
    timestamp GLOB '????-??-??T??:??:??+00:00'
    OR (timestamp GLOB '*T??:??:??.??????+00:00' AND timestamp NOT GLOB '*.000000+00:00')
  );

CREATE INDEX slumberd_extractions_eid ON slumberd_extractions (eid);

CREATE INDEX slumberd_model_requests_id ON slumberd_model_requests (id);

CREATE INDEX slumberd_model_summaries_eid ON slumberd_model_summaries (eid);

CREATE TABLE episodes (
  id TEXT PRIMARY KEY,
  scope_key TEXT NOT NULL,
  content BLOB NOT NULL,
  timestamp TEXT NOT NULL,
  metadata BLOB NOT NULL
);

CREATE TABLE slumberd_accesses (
  eid TEXT PRIMARY KEY,
  scope_key TEXT NOT NULL,
  count INTEGER NOT NULL,
  last INTEGER,
  held INTEGER NOT NULL
) WITHOUT ROWID;

CREATE TABLE slumberd_episode_deletions (
  number INTEGER PRIMARY KEY AUTOINCREMENT,
  rid INTEGER
);

CREATE TABLE slumberd_episode_log (
  seq INTEGER PRIMARY KEY AUTOINCREMENT,
  rid,
  eid
);

CREATE TABLE slumberd_extractions (
  key TEXT PRIMARY KEY,
  eid TEXT NOT NULL,
  model TEXT NOT NULL,
  status TEXT NOT NULL,
  triples TEXT NOT NULL,
  dropped INTEGER NOT NULL,
  problem TEXT NOT NULL,
  answer TEXT NOT NULL,
  attempts INTEGER NOT NULL,
  at INTEGER NOT NULL
) WITHOUT ROWID;

CREATE TABLE slumberd_model_requests (
  eid TEXT NOT NULL,
  id TEXT NOT NULL,
  scope_key TEXT NOT NULL,
  key TEXT NOT NULL,
  request TEXT NOT NULL,
  PRIMARY KEY (eid, id)
) WITHOUT ROWID;

CREATE TABLE slumberd_model_summaries (
  key TEXT PRIMARY KEY,
  eid TEXT NOT NULL,
  model TEXT NOT NULL,
  status TEXT NOT NULL,
  text TEXT NOT NULL,
  problem TEXT NOT NULL,
  attempts INTEGER NOT NULL,
  at INTEGER NOT NULL
) WITHOUT ROWID;

CREATE TABLE slumberd_model_usage (
  day TEXT PRIMARY KEY,
  calls INTEGER NOT NULL,
  tokens_in INTEGER NOT NULL,
  tokens_out INTEGER NOT NULL,
  cost_micros INTEGER NOT NULL
) WITHOUT ROWID;

CREATE TABLE slumberd_schema (
  component TEXT PRIMARY KEY,
  version INTEGER NOT NULL
);

CREATE TABLE sqlite_sequence(name,seq);

CREATE TRIGGER slumberd_episode_deleted
AFTER DELETE ON episodes
BEGIN
  INSERT INTO slumberd_episode_deletions (rid)
  VALUES (OLD.rowid);
  DELETE FROM slumberd_episode_deletions
  WHERE number <= (SELECT max(number) FROM slumberd_episode_deletions) - 10000;
END;

CREATE TRIGGER slumberd_episode_inserted
AFTER INSERT ON episodes
BEGIN
  INSERT INTO slumberd_episode_log (rid, eid)
  VALUES (NEW.rowid, NEW.id);
END;

CREATE TRIGGER slumberd_episode_updated
AFTER UPDATE ON episodes
WHEN NEW.rowid IS NOT OLD.rowid
  OR NEW.id IS NOT OLD.id
  OR NEW.scope_key IS NOT OLD.scope_key
  OR NEW.content IS NOT OLD.content
  OR NEW.timestamp IS NOT OLD.timestamp
  OR NEW.metadata IS NOT OLD.metadata
BEGIN
  INSERT INTO slumberd_episode_log (rid, eid)
  VALUES (NEW.rowid, NEW.id);
END;
