"""asv benchmarks. They measure the same as `harness.run.worker`, with the same clock.

For asv smaller is better, so throughput is given as microseconds per cell. Each measurement of a loader is one sample
from a new process. There are eight samples, because asv's significance test cannot succeed with six.

asv installs the wheel of each commit, which contains only the library. Harness and adapters are those of this checkout
for all commits. The checkout is last in sys.path, so that its library does not hide the one in the wheel.
"""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[2]))
