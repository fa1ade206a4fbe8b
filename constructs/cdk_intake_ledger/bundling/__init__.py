"""A processor's folder as a Lambda asset, with the wheels of its requirements."""
