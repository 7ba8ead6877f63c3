"""Simulations side by side: variants, sizes, where they run, which is best."""
