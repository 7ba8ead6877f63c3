"""The entry point: the table of verbs, and the verbs about Mooring itself."""
