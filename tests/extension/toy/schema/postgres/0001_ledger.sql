CREATE TABLE holdfast_notes_ledger (
    job   text NOT NULL,
    entry text NOT NULL,
    PRIMARY KEY (job, entry)
);
CREATE TABLE holdfast_notes_sweeps (times integer NOT NULL);
INSERT INTO holdfast_notes_sweeps (times) VALUES (0);
