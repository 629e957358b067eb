"""asv's view of the measurement: what it times is what `harness.worker` times, with the same stopwatch.

asv knows smaller as better only, so throughput is microseconds a cell. A figure from a loader is one sample, of one
fresh process; eight of them, since asv's test can find nothing significant in six.
"""
