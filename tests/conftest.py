"""Settings of all property tests.

No example is timed: a busy machine must not make a law fail. With the environment variable ``CI`` set, every run draws
the same examples.
"""

from __future__ import annotations

import os
import signal

from hypothesis import HealthCheck, settings

settings.register_profile("mooring", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile(
    "mooring-ci", parent=settings.get_profile("mooring"), derandomize=True, database=None, print_blob=True
)
settings.load_profile("mooring-ci" if os.environ.get("CI") else "mooring")

# A shell without job control starts what it puts into the background deaf to Ctrl-C, and programs inherit that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
