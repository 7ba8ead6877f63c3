"""The verbs. Each module is imported when its verb is called, and not before."""
