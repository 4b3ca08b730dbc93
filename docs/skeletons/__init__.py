"""A complete, small model to copy; CONTRIBUTING.md states where each file belongs."""
