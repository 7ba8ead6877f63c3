"""Documents about whole clusters."""
