-- Files as they were uploaded: one object for each content of a tenant, whatever number of images have it.
CREATE TABLE holdfast_images_original (
    tenant      text   NOT NULL,
    sha256      text   NOT NULL,
    storage_key text   NOT NULL,
    images      integer NOT NULL CHECK (images >= 0),
    PRIMARY KEY (tenant, sha256)
) STRICT;
CREATE INDEX holdfast_images_original_key ON holdfast_images_original (storage_key);

CREATE TABLE holdfast_images_image (
    id              text        PRIMARY KEY,
    tenant          text        NOT NULL,
    status          text        NOT NULL,
    job_id          text,
    sha256          text        NOT NULL,
    content_type    text        NOT NULL,
    bytes           integer     NOT NULL,
    width           integer     NOT NULL,
    height          integer     NOT NULL,
    frames          integer     NOT NULL,
    wanted          text        NOT NULL,
    dhash           text,
    blurhash        text,
    color           text,
    error_code      text,
    error_message   text,
    idempotency_key text,
    request_digest  text        NOT NULL,
    created_at      integer     NOT NULL,
    updated_at      integer     NOT NULL,
    deleted_at      integer,
    UNIQUE (tenant, idempotency_key)
) STRICT;
CREATE INDEX holdfast_images_image_job ON holdfast_images_image (job_id);
CREATE INDEX holdfast_images_image_page ON holdfast_images_image (tenant, id) WHERE deleted_at IS NULL;
CREATE INDEX holdfast_images_image_status ON holdfast_images_image (tenant, status, id) WHERE deleted_at IS NULL;

CREATE TABLE holdfast_images_variant (
    image_id    text    NOT NULL REFERENCES holdfast_images_image (id),
    name        text    NOT NULL,
    spec        text    NOT NULL,
    storage_key text    NOT NULL UNIQUE,
    sha256      text    NOT NULL,
    width       integer NOT NULL,
    height      integer NOT NULL,
    bytes       integer NOT NULL,
    frames      integer NOT NULL,
    PRIMARY KEY (image_id, name)
) STRICT;

-- Objects, and folders of objects (with a / at the end), that are deleted when they are due unless a row above names
-- them. A row is written before the object is: whatever crashes, nothing stays in the storage that no row leads to.
CREATE TABLE holdfast_images_garbage (
    storage_key text        PRIMARY KEY,
    job_id      text,
    due_at      integer     NOT NULL
) STRICT;
CREATE INDEX holdfast_images_garbage_due ON holdfast_images_garbage (due_at);
CREATE INDEX holdfast_images_garbage_job ON holdfast_images_garbage (job_id);

-- The object that marks the storage: where it is missing, the storage is another one, or is not mounted. One row.
CREATE TABLE holdfast_images_storage (
    one  integer PRIMARY KEY CHECK (one = 1),
    mark text    NOT NULL
) STRICT;
