"""Turn episodes into deltas: claims, the precedence rule, their resolution. Stores nothing."""
