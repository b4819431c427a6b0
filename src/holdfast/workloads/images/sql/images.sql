-- name: add_image
INSERT INTO holdfast_images_image
       (id, tenant, status, sha256, content_type, bytes, width, height, frames, wanted, idempotency_key,
        request_digest, created_at, updated_at)
VALUES (:id, :tenant, 'queued', :sha256, :content_type, :bytes, :width, :height, :frames, :wanted,
        :idempotency_key, :request_digest, {now}, {now})
ON CONFLICT (tenant, idempotency_key) DO NOTHING
RETURNING id

-- name: image_of_key
SELECT id, job_id, status, request_digest
  FROM holdfast_images_image
 WHERE tenant = :tenant AND idempotency_key = :idempotency_key AND deleted_at IS NULL

-- name: image
SELECT * FROM holdfast_images_image WHERE tenant = :tenant AND id = :id AND deleted_at IS NULL

-- name: any_image
-- Also one that is being deleted.
SELECT * FROM holdfast_images_image WHERE tenant = :tenant AND id = :id

-- name: lock_image
-- Also one that is being deleted.
UPDATE holdfast_images_image SET updated_at = {now} WHERE tenant = :tenant AND id = :id RETURNING *

-- name: page
SELECT * FROM holdfast_images_image
 WHERE tenant = :tenant AND deleted_at IS NULL AND id < :before
 ORDER BY id DESC LIMIT {limit}

-- name: page_of_status
SELECT * FROM holdfast_images_image
 WHERE tenant = :tenant AND status = :status AND deleted_at IS NULL AND id < :before
 ORDER BY id DESC LIMIT {limit}

-- name: set_wanted
UPDATE holdfast_images_image SET wanted = :wanted, updated_at = {now} WHERE tenant = :tenant AND id = :id

-- name: assign_job
UPDATE holdfast_images_image
   SET job_id = :job_id, status = :status, error_code = NULL, error_message = NULL, updated_at = {now}
 WHERE tenant = :tenant AND id = :id

-- name: set_status
UPDATE holdfast_images_image
   SET status = :status, error_code = :error_code, error_message = :error_message, updated_at = {now}
 WHERE id = :id AND job_id = :job_id

-- name: set_facts
UPDATE holdfast_images_image
   SET width = :width, height = :height, frames = :frames, dhash = :dhash, blurhash = :blurhash, color = :color,
       updated_at = {now}
 WHERE id = :id

-- name: mark_deleted
UPDATE holdfast_images_image SET deleted_at = {now}, updated_at = {now}
 WHERE tenant = :tenant AND id = :id AND deleted_at IS NULL
RETURNING id

-- name: delete_image
-- No row: another job has deleted it.
DELETE FROM holdfast_images_image WHERE id = :id RETURNING id

-- name: variants
SELECT image_id, name, spec, storage_key, sha256, width, height, bytes, frames
  FROM holdfast_images_variant WHERE image_id {in:ids text} ORDER BY image_id, name

-- name: shown_variant
-- Of any tenant.
SELECT variant.spec, variant.storage_key, variant.sha256
  FROM holdfast_images_variant AS variant
  JOIN holdfast_images_image AS image ON image.id = variant.image_id
 WHERE variant.image_id = :image_id AND variant.name = :name AND image.deleted_at IS NULL

-- name: put_variants
INSERT INTO holdfast_images_variant (image_id, name, spec, storage_key, sha256, width, height, bytes, frames)
SELECT made.image_id, made.name, made.spec, made.storage_key, made.sha256, made.width, made.height, made.bytes,
       made.frames
  FROM {rows:made(image_id text, name text, spec text, storage_key text, sha256 text, width integer, height integer,
                  bytes bigint, frames integer)}

-- name: delete_variants
DELETE FROM holdfast_images_variant WHERE image_id = :image_id AND name {in:names text}

-- name: delete_all_variants
DELETE FROM holdfast_images_variant WHERE image_id = :image_id

-- name: add_original
INSERT INTO holdfast_images_original (tenant, sha256, storage_key, images) VALUES (:tenant, :sha256, :storage_key, 1)
ON CONFLICT (tenant, sha256) DO UPDATE SET images = holdfast_images_original.images + 1
RETURNING storage_key

-- name: original
SELECT storage_key FROM holdfast_images_original WHERE tenant = :tenant AND sha256 = :sha256

-- name: lock_original
-- Before the image, as uploads do.
UPDATE holdfast_images_original SET images = images WHERE tenant = :tenant AND sha256 = :sha256

-- name: replace_original
UPDATE holdfast_images_original SET storage_key = :storage_key WHERE tenant = :tenant AND sha256 = :sha256

-- name: leave_original
UPDATE holdfast_images_original SET images = images - 1
 WHERE tenant = :tenant AND sha256 = :sha256
RETURNING images, storage_key

-- name: delete_original
DELETE FROM holdfast_images_original WHERE tenant = :tenant AND sha256 = :sha256 AND images = 0

-- name: add_garbage
-- Deleted after :seconds unless it is recorded by then.
INSERT INTO holdfast_images_garbage (storage_key, job_id, due_at) VALUES (:storage_key, :job_id, {now+:seconds})
ON CONFLICT (storage_key) DO UPDATE SET due_at = excluded.due_at, job_id = excluded.job_id

-- name: keep
-- The object is recorded.
DELETE FROM holdfast_images_garbage WHERE storage_key {in:keys text}

-- name: discard
-- The object is not recorded and will not be: no need to wait.
UPDATE holdfast_images_garbage SET due_at = {now} WHERE storage_key = :storage_key

-- name: discard_of_job
-- The job has ended: what its executions left behind is not needed any more.
UPDATE holdfast_images_garbage SET due_at = {now} WHERE job_id = :job_id AND due_at > {now}

-- name: discard_variants
-- After :seconds, in which signed URLs of replaced variants still work.
INSERT INTO holdfast_images_garbage (storage_key, job_id, due_at)
SELECT storage_key, NULL, {now+:seconds}
  FROM holdfast_images_variant WHERE image_id = :image_id AND name {in:names text}
ON CONFLICT (storage_key) DO NOTHING

-- name: garbage_of_job
SELECT storage_key FROM holdfast_images_garbage WHERE job_id = :job_id ORDER BY storage_key

-- name: due_garbage
-- Not of executions that are still going on, or that a retry will go on with.
SELECT storage_key, job_id, due_at FROM holdfast_images_garbage AS garbage
 WHERE due_at <= {now}
   AND NOT EXISTS (
       SELECT 1 FROM holdfast_images_image AS image
        WHERE image.job_id = garbage.job_id AND image.status IN ('queued', 'processing', 'failed_retryable'))
 ORDER BY due_at, storage_key LIMIT {limit}

-- name: look_again
-- The folder of an execution: one that has lost its job goes on until it hears of it. Next time it is of no job.
UPDATE holdfast_images_garbage SET due_at = {now+:seconds}, job_id = NULL WHERE storage_key {in:keys text}

-- name: recorded
-- The keys among these that a row names.
SELECT storage_key FROM holdfast_images_variant WHERE storage_key {in:keys text}
UNION ALL
SELECT storage_key FROM holdfast_images_original WHERE storage_key {in:keys text}
UNION ALL
SELECT mark FROM holdfast_images_storage WHERE one = 1 AND mark {in:keys text}

-- name: mark
SELECT mark FROM holdfast_images_storage WHERE one = 1

-- name: add_mark
INSERT INTO holdfast_images_storage (one, mark) VALUES (1, :mark) ON CONFLICT (one) DO NOTHING
