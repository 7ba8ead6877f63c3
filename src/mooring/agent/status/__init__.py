"""What the agent shows of itself: its snapshot, and the status document, metrics, health and pictures made of it."""
