-- name: add_entry
INSERT INTO holdfast_notes_ledger (job, entry) VALUES (:job, :entry) RETURNING job

-- name: entries
SELECT job, entry FROM holdfast_notes_ledger ORDER BY job, entry

-- name: entries_of
SELECT entry FROM holdfast_notes_ledger WHERE job = :job ORDER BY entry

-- name: sweep
UPDATE holdfast_notes_sweeps SET times = times + 1 RETURNING times
