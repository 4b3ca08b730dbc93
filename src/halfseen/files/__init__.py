"""Table files: how they are read, what their columns hold, and how they are written back."""
