"""Groups of options of the constructs.

All folders but `bundling`, `checks` and `resources` may import it.
"""
