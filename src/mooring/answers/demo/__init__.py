"""``mooring demo``: an example that needs no input."""
