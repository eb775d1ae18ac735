"""Write logs and metrics: line formats, the event catalogue, Prometheus text."""
