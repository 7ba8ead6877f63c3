"""A plan as something to look at: rows of tables, devices, the picture of its node, and the HTML report."""
