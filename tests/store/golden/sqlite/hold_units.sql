INSERT INTO holdfast_limit_units (bucket, job_id, units)
SELECT held.bucket, j.id, held.units
  FROM holdfast_jobs j
  JOIN (SELECT value->>0 AS lane, value->>1 AS bucket, value->>2 AS units FROM json_each(:held)) AS held ON held.lane = coalesce(j.key_lane, j.lane)
 WHERE j.id IN (SELECT value FROM json_each(:ids))
RETURNING bucket, units;
