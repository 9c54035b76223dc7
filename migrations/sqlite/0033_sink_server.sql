-- As in PostgreSQL; SQLite has no process of its own, and this is 0.
ALTER TABLE visit_sink ADD COLUMN server INTEGER NOT NULL DEFAULT 0;
