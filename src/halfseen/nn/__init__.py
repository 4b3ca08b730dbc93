"""Network layers that read incomplete rows."""
