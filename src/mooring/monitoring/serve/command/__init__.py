"""``mooring serve``: the verb, and where what it shows comes from."""

from mooring.monitoring.serve.command.verb import command

__all__ = ["command"]
