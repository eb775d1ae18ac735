-- The parts that statements of every file may include.

-- part: recorded_at
  min(firings.at, iif(firings.generation < 0, firings.upto_seq, firings.at), ifnull((
    SELECT min(clock.at)
    FROM slumberd_firings AS clock
    WHERE clock.rule = '@clock'
      AND clock.n > firings.n
  ), firings.at))

-- part: run
  CASE WHEN json_valid(CAST(own.payload AS TEXT))
    THEN json_extract(CAST(own.payload AS TEXT), '$.run') END

-- part: is_of_run
  instr(own.payload, CAST(:run AS BLOB)) > 0
  AND json_extract(CAST(own.payload AS TEXT), '$.run') = :run

-- part: undone_firing
  json_extract(CAST(own.payload AS TEXT), '$.undoes')

-- part: in_ids
  IN (SELECT value FROM json_each(:ids))

-- part: in_eids
  IN (SELECT value FROM json_each(:eids))

-- part: in_values
  IN (SELECT value FROM json_each(:values))

-- part: in_rows
  IN (SELECT value FROM json_each(:rows))

-- part: from_ids
FROM json_each(:ids) AS wanted

-- part: from_keys
FROM json_each(:keys) AS wanted

-- part: from_rules
FROM json_each(:rules) AS wanted

-- part: from_values
FROM json_each(:values) AS wanted

-- part: from_numbers
FROM json_each(:numbers) AS wanted

-- part: is_no_stage_fact
  substr(fact_id, 1, 7) != '@marks/'
  AND substr(fact_id, 1, 9) != '@weights/'
  AND substr(fact_id, 1, 11) != '@summaries/'

-- part: is_unread
  -- No user comes from another shard.
  :rule IS NOT NULL
