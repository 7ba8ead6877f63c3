"""``mooring replay``: recorded scenarios run again."""
