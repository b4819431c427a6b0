"""The composition root: settings go in; an engine, a server or a worker process comes out."""
