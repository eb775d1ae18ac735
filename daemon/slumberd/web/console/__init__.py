"""The web console: pages for people, rendered by the daemon and served under ``/console``."""
