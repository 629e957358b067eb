"""What a loader feeds: a transformer over the tokens of cells, the FLOPs of its step, and the peak of a device."""
