"""The kubelet's state files: every format read, the current and the older ones written, byte for byte.

Values come from and go to the managers' ``state`` modules. Nothing here decides whether a state fits a
machine. Only ``store.py`` touches files; everything else turns text into values and values into text.

Source: kubelet v1.37.1, cpumanager/state, memorymanager/state and checkpointmanager; spec: state-files.md.
"""
