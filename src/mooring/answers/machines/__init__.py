"""``mooring machines``."""
