"""From the options of a verb to values: what files, archives, the computer or the cluster say."""
