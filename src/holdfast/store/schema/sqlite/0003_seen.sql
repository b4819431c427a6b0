-- What is counted seldom and read often: one process counts, all of them show it.

CREATE TABLE counted (
    name     text    NOT NULL PRIMARY KEY,
    taken_at integer NOT NULL,           -- when the figures were true
    asked_at integer NOT NULL,           -- when somebody last began to count: others leave it to them for a while
    figures  text    NOT NULL
) STRICT;
