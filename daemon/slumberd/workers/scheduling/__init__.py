"""Decide when rules fire, and fire them: cron, due, retry, the loop."""
