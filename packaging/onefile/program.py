"""What the executable with its own interpreter starts: one program under the three names of the wheel's scripts."""

import sys
from pathlib import Path

from mooring.command import main

_PROGRAMS = {"kubectl-mooring": main.kubectl_main, "kubectl_complete-mooring": main.kubectl_complete_main}

_PROGRAMS.get(Path(sys.argv[0]).name, main.main)()
