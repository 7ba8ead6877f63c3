"""Options, streams and terminal, which all commands share.

``-f`` takes manifests as in kubectl, positionals are names, ``-o`` is a format, ``--to`` a destination. Exit codes: 0
done, 1 the answer is a "no", 2 bad input or usage.
"""
