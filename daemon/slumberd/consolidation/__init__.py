"""Turn episodes into deltas: extraction, claims, precedence, stages. Stores nothing."""
