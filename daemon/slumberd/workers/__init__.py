"""Tasks of the daemon beside the path: the scheduler, provenance, answers of models, graphs."""
