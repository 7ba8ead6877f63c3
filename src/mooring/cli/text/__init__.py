"""The answers of the verbs as text for people."""
