"""After a restart or a lost connection: what is left of the state, and what the runtime says that there is."""
