"""Search entries: the relevance to a text, scores, several stores at once, token budgets."""
