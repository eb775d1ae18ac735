-- The parts that statements of every file may include.

-- part: recorded_at
  min(firings.at, ifnull((
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
