"""asv benchmarks. Loaders are measured with the same function and clock as in `harness.run.worker`.

In asv smaller is better, so throughput is given as microseconds per cell. Each measurement of a loader is one sample
from a new process. There are eight samples, because asv's significance test can find no difference with six.

asv installs the wheel of each commit, which contains only the library. The harness and the adapters are those of this
checkout for all commits. The checkout is last in sys.path, so that its library does not hide the one in the wheel.
"""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[2]))
