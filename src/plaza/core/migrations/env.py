"""What Alembic runs to migrate: on the connection, and in the transaction, that `core/sql_migrations.py` gives it."""

from alembic import context

context.configure(connection=context.config.attributes["connection"])
with context.begin_transaction():
    context.run_migrations()
