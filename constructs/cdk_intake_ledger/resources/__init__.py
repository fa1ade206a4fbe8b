"""Names and keys of resources, and readers of resources that an app already has.

All folders but `bundling` and `checks` may import it.
"""
