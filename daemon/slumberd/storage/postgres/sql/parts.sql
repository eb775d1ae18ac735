-- The parts that statements of every file may include.

-- part: recorded_at
  least(firings.at, CASE WHEN firings.generation < 0 THEN firings.upto_seq END, (
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

-- part: in_ids
  = ANY (:ids::text[])

-- part: in_eids
  = ANY (:eids::text[])

-- part: in_values
  = ANY (:values::text[])

-- part: in_rows
  = ANY (:rows::bigint[])

-- part: from_ids
FROM unnest(:ids::text[]) AS wanted(value)

-- part: from_keys
FROM unnest(:keys::text[]) AS wanted(value)

-- part: from_rules
FROM unnest(:rules::text[]) AS wanted(value)

-- part: from_values
FROM unnest(:values::text[]) AS wanted(value)

-- part: from_numbers
FROM unnest(:numbers::bigint[]) AS wanted(value)

-- part: is_no_stage_fact
  substr(fact_id, 1, 7) != '@marks/'
  AND substr(fact_id, 1, 9) != '@weights/'
  AND substr(fact_id, 1, 11) != '@summaries/'

-- part: is_unread
  (
    NOT (SELECT EXISTS (SELECT 1 FROM skipped_versions WHERE rule = :rule))
    OR NOT EXISTS (
      SELECT 1
      FROM skipped_versions AS skipped
      WHERE skipped.rule = :rule
        AND log.seq BETWEEN skipped.first AND skipped.last
    )
  )
