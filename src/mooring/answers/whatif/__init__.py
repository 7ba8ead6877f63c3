"""``mooring whatif``: one thing changed, or the nearest change that admits a pod."""
