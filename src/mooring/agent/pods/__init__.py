"""Where pods come from, whether runtime and pod agree, and reports to the cluster.

A decision needs the whole pod: the runtime tells neither init containers from sidecars nor the containers that are yet
to come. So pods come from the API server or from the folder of static pods, and only where both fail they are derived
from what the runtime tells.
"""
