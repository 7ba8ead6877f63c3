"""Plugins that come with Mooring. Each is an entry point of the group ``mooring.cpu_plugins``, like every plugin."""
