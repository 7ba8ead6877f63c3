"""The report as one HTML page that needs nothing else: no network, no other file.

Text and tables are written here; what changes from step to step is drawn by the scripts in ``assets`` from the data
that the page carries. The map uses the layout, the colours and the patterns of the SVG.
"""
