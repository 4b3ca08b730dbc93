"""The automatic choice: known cells are hidden, candidates are scored on them, and the best are combined."""
