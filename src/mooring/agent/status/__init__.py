"""What the agent shows of itself: its snapshot, and the status document, metrics and health made of it."""
