"""What would happen if a pod were resized in place, and how far it can grow."""
