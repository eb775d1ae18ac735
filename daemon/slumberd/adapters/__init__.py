"""Public names of the adapters for agent frameworks; `slumberd.integrations` implements them."""
