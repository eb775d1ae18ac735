"""Share a PostgreSQL database with other processes: leases, requests and reports of hosts."""
