"""Values that every room shares: CPU sets, quantities, machines, pods, configuration, decisions.

Nothing here decides anything and nothing here reads anything; only the standard library is imported.
"""
