"""A whole, small model to copy; CONTRIBUTING.md says where each file goes."""
