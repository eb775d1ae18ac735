"""Write logs and metrics: line formats, the event catalogue, and the text of Prometheus.

The collection of health values is in `daemon`, not here.
"""
