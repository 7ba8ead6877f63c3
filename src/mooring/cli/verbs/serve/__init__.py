"""``mooring serve``: the verb, and where what it shows comes from."""

from mooring.cli.verbs.serve.verb import command

__all__ = ["command"]
