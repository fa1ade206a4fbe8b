"""Groups of options of the constructs."""
