"""The daily job: brings what Valkey holds up to date with the SQL tables and the day."""
