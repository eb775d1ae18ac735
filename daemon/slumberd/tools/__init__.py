"""What operators and authors ask beside the daemon: doctor, status, tests of rules, diff."""
