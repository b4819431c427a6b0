CREATE TABLE notes_ledger (
    job   text NOT NULL,
    entry text NOT NULL,
    PRIMARY KEY (job, entry)
);
CREATE TABLE notes_sweeps (times integer NOT NULL);
INSERT INTO notes_sweeps (times) VALUES (0);
