"""The SQLite engine: connections, databases, statements, migrations, health."""
