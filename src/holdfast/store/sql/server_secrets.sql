-- name: secret
SELECT value FROM holdfast_secrets WHERE name = :name

-- name: put_secret
-- The first server stores the value; the others read it.
INSERT INTO holdfast_secrets (name, value) VALUES (:name, :value) ON CONFLICT (name) DO NOTHING RETURNING name
