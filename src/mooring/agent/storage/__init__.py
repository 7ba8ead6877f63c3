"""What the agent keeps in files: its state folder with the journal and the checkpoints in the kubelet's formats."""
