"""The command line: one thin module a verb, one grammar for all of them.

``-f`` takes manifests as in kubectl, positionals are names, ``-o`` is a format, ``--to`` a destination. Exit codes: 0
done, 1 the answer is a "no", 2 bad input or usage.
"""
