"""Copy the stores of a daemon: backups, restores, and moves between files and a database."""
