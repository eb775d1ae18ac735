"""What operators and authors of rules ask beside the daemon: doctor, status, tests of rules, diff."""
