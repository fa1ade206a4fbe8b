"""Parts of the packages that their doors do not show. A test imports them from here, by the kind of work.

If a module of a package moves, only one of these modules changes. `tests/packaging/test_doors.py` holds the rule.
"""
