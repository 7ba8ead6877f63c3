"""What the agent keeps in files: its state folder with the journal, and the files that tell containers their CPUs."""
