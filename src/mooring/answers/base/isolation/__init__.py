"""Is "exclusive" exclusive? Who else may run on the CPUs that containers hold.

The kubelet keeps only other *pods* off them, not kernel threads, interrupts, services and the containers of other
tools are the operator's business (kubernetes/kubernetes#99895). Nothing is decided here; facts of the machine are held
against the assignments.
"""
