"""asv's view of the measurement: what it times is what `harness.run.worker` times, with the same stopwatch.

asv knows smaller as better only, so throughput is microseconds a cell. A figure from a loader is one sample, of one
fresh process; eight of them, since asv's test can find nothing significant in six.

asv installs each commit's wheel, which holds the library alone; harness and adapters are this checkout's for all of
them. So the checkout is the last place where modules are looked for, or its library would hide the wheel's.
"""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[2]))
