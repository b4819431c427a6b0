INSERT INTO holdfast_limit_units (bucket, job_id, units)
SELECT held.bucket, j.id, held.units
  FROM holdfast_jobs j
  JOIN unnest($1::bigint[], $2::text[], $3::integer[]) AS held(lane, bucket, units) ON held.lane = coalesce(j.key_lane, j.lane)
 WHERE j.id = ANY($4::uuid[])
RETURNING bucket, units;
