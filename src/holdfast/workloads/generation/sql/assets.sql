-- name: put_assets
INSERT INTO holdfast_generation_asset
       (id, tenant, user_id, request_id, job_id, position, storage_key, content_type, width, height, bytes, sha256, seed,
        prompt, search, created_at)
SELECT made.id, request.tenant, request.user_id, request.id, request.job_id, made.position, made.storage_key,
       made.content_type, made.width, made.height, made.bytes, made.sha256, made.seed, request.prompt, :search, {now}
  FROM {rows:made(id text, position integer, storage_key text, content_type text, width integer, height integer,
                  bytes bigint, sha256 text, seed bigint)}
  JOIN holdfast_generation_request AS request ON request.job_id = :job_id

-- name: assets_made
SELECT count(*) AS images FROM holdfast_generation_asset WHERE job_id = :job_id

-- name: assets_of
SELECT * FROM holdfast_generation_asset WHERE request_id {in:ids text} ORDER BY request_id, job_id DESC, position

-- name: asset
SELECT * FROM holdfast_generation_asset WHERE tenant = :tenant AND user_id = :user_id AND id = :id

-- name: hold_asset
-- For a change: two changes at once would write the same tags, or tags of an asset that is deleted.
SELECT * FROM holdfast_generation_asset WHERE tenant = :tenant AND user_id = :user_id AND id = :id {locked row}

-- name: any_asset
-- Of any tenant.
SELECT * FROM holdfast_generation_asset WHERE id = :id

-- name: library
SELECT * FROM holdfast_generation_asset
 WHERE tenant = :tenant AND user_id = :user_id AND id < :before
   AND (:search = '' OR search LIKE :search ESCAPE '!')
 ORDER BY id DESC LIMIT {limit}

-- name: library_of_favorites
-- A query of its own: a parameter instead of `favorite` would rule out the partial index.
SELECT * FROM holdfast_generation_asset
 WHERE tenant = :tenant AND user_id = :user_id AND id < :before AND favorite
   AND (:search = '' OR search LIKE :search ESCAPE '!')
 ORDER BY id DESC LIMIT {limit}

-- name: library_of_tag
-- CROSS JOIN: SQLite begins with the tags, however few images the user has.
SELECT asset.* FROM holdfast_generation_tag AS tagged CROSS JOIN holdfast_generation_asset AS asset
 WHERE tagged.tenant = :tenant AND tagged.user_id = :user_id AND tagged.tag = :tag AND tagged.asset_id < :before
   AND asset.id = tagged.asset_id
   AND (:search = '' OR asset.search LIKE :search ESCAPE '!')
   AND (NOT :only_favorites OR asset.favorite)
 ORDER BY tagged.asset_id DESC LIMIT {limit}

-- name: tags_of
SELECT asset_id, tag FROM holdfast_generation_tag WHERE asset_id {in:ids text} ORDER BY asset_id, tag

-- name: tags
SELECT tag, count(*) AS assets FROM holdfast_generation_tag
 WHERE tenant = :tenant AND user_id = :user_id GROUP BY tag ORDER BY tag LIMIT {limit}

-- name: set_favorite
UPDATE holdfast_generation_asset SET favorite = :favorite WHERE id = :id

-- name: clear_tags
DELETE FROM holdfast_generation_tag WHERE asset_id = :id

-- name: put_tags
INSERT INTO holdfast_generation_tag (tenant, user_id, tag, asset_id)
SELECT :tenant, :user_id, given.tag, :id FROM {rows:given(tag text)}

-- name: delete_asset
DELETE FROM holdfast_generation_asset WHERE id = :id

-- name: set_thumbnail
-- No row: the asset was deleted meanwhile.
UPDATE holdfast_generation_asset SET thumbnail_key = :thumbnail_key WHERE id = :id AND tenant = :tenant RETURNING id

-- name: is_recorded
SELECT 1 AS one FROM holdfast_generation_asset WHERE storage_key = :storage_key
UNION ALL
SELECT 1 AS one FROM holdfast_generation_asset WHERE thumbnail_key = :storage_key
UNION ALL
SELECT 1 AS one FROM holdfast_generation_request WHERE job_id = :job_id AND finished_at IS NULL
