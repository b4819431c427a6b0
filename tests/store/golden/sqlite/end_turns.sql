DELETE FROM holdfast_key_lanes WHERE key_lane IN (SELECT value FROM json_each(:lanes)) RETURNING key_lane;
