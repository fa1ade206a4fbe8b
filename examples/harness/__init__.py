"""The shared parts of the comparisons `demo`, `fanout`, `load` and `pictures`. Each adds its world and its judge."""
