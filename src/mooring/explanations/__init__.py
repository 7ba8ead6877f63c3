"""From the facts of a decision to reasons, stories and remedies, each with its stable code."""
