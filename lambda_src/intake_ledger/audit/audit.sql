-- Puts each state that S3 shows into a line of the report, and nominates those, and rows of the ledger, that may differ.
-- It decides nothing: a candidate is judged by audit/diff.py after another look at S3 and at the row. So this may
-- nominate too much, never too little. The SQL is common to SQLite, DuckDB and Trino.
--
--   listed  a state that S3 shows: key, place, state, kind, etag, size, created_at, skipped
--   held    a row of the ledger: the first six, and committed, updated_at, readable, may_be_gone
--   judged  one row: settled_before, known_since, removals_since, baseline, undated, deletes, all_listed
--
-- `place` tells the rows of one key apart, `state` is a state's identity, times are epoch milliseconds.
SELECT
  coalesce(listed.key, held.key) AS key,
  coalesce(listed.place, held.place) AS place,
  listed.key IS NOT NULL AS shown,
  CASE WHEN listed.key IS NULL THEN held.state ELSE listed.state END AS state,
  CASE WHEN listed.key IS NULL THEN held.kind ELSE listed.kind END AS kind,
  CASE WHEN listed.key IS NULL THEN held.etag ELSE listed.etag END AS etag,
  CASE WHEN listed.key IS NULL THEN held.size ELSE listed.size END AS size,
  listed.created_at AS created_at,
  CASE
    -- A row of what S3 does not show. What was written since may have come after the listing.
    WHEN listed.key IS NULL AND held.may_be_gone AND judged.all_listed AND held.updated_at <= judged.settled_before
      THEN 'candidate'
    WHEN listed.key IS NULL THEN 'unlisted'
    WHEN held.committed = listed.state THEN 'agrees'
    -- The pipeline skips a directory marker that has no row, and a key that `exclude` leaves out. With a row, it is
    -- judged as every other state.
    WHEN held.key IS NULL AND listed.skipped IS NOT NULL THEN listed.skipped
    WHEN listed.created_at > judged.settled_before THEN 'settling'
    WHEN listed.created_at IS NULL AND (held.key IS NULL OR NOT judged.undated) THEN 'settling'
    WHEN NOT held.readable THEN 'laterFormat'
    WHEN held.key IS NOT NULL THEN 'candidate'
    -- S3 shows it, and no row knows it: lost, unless its row has expired or never was.
    WHEN listed.kind <> 'object' AND NOT judged.deletes THEN 'agrees'
    WHEN listed.created_at >= CASE WHEN listed.kind = 'object' THEN judged.known_since ELSE judged.removals_since END
      THEN 'candidate'
    WHEN listed.created_at < judged.baseline THEN 'baseline'
    ELSE 'lookBack'
  END AS line
FROM held
FULL JOIN listed ON listed.key = held.key AND listed.place = held.place
CROSS JOIN judged
