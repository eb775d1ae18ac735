"""Run the daemon: composition, operations, control socket, reload, heartbeat, systemd."""
