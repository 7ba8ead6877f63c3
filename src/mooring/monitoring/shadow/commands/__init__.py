"""Commands of the shadow."""
