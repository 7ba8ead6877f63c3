"""Texts about whole clusters."""
