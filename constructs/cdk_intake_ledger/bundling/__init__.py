"""A processor's folder as a Lambda asset, with the wheels of its requirements.

`functions` and `audit` import it. `wheels` is imported at its first use: a processor without requirements needs neither
`packaging` nor uv.
"""
