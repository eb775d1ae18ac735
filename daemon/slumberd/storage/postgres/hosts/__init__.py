"""The tables that the processes of a database share: leases, requests, rules."""
