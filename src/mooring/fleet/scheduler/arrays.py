"""Arrays over the nodes of a cluster."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Amounts = npt.NDArray[np.int64]
NodeMask = npt.NDArray[np.bool_]
