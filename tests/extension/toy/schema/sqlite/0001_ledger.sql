CREATE TABLE notes_ledger (
    job   text NOT NULL,
    entry text NOT NULL,
    PRIMARY KEY (job, entry)
);
