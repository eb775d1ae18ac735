-- The parts that statements of every file may include.

-- part: recorded_at
  least(firings.at, (
    SELECT min(clock.at)
    FROM slumberd_firings AS clock
    WHERE clock.rule = '@clock'
      AND clock.n > firings.n
  ))

-- part: run
  substring(convert_from(own.payload, 'UTF8') FROM '"run":"([^"\\]*)"')

-- part: is_of_run
  position(convert_to(:run::text, 'UTF8') IN own.payload) > 0
  AND substring(convert_from(own.payload, 'UTF8') FROM '"run":"([^"\\]*)"') = :run::text

-- part: undone_firing
  substring(convert_from(own.payload, 'UTF8') FROM '"undoes":"([^"\\]*)"')
