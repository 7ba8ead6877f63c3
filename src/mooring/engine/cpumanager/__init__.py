"""The CPU manager: options, how many exclusive CPUs, which CPUs, hints, start and removal.

Policy ``none`` needs no code here: it allocates nothing, hints nothing and checks nothing.
"""
