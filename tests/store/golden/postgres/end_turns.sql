DELETE FROM holdfast_key_lanes WHERE ctid = ANY (ARRAY(SELECT ctid FROM holdfast_key_lanes WHERE key_lane = ANY ($1::bigint[]) FOR UPDATE SKIP LOCKED)) RETURNING key_lane;
