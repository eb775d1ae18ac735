"""Ask language models, before a firing, what episodes state; record their answers."""
