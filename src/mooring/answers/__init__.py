"""Answers to questions about a node: a folder for each verb, and what they share in ``base``."""
