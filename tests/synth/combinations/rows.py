"""All combinations: the rows of the matrix, each in an app of its own, and those of the modules beside this one."""

from tests.synth import matrix
from tests.synth.combinations.apps import APPS
from tests.synth.combinations.buckets import BUCKETS
from tests.synth.combinations.combination import Combination
from tests.synth.combinations.resources import RESOURCES

OWN = (*BUCKETS, *RESOURCES, *APPS)
"""Combinations that the matrix does not have."""

OF_THE_MATRIX = tuple(
    # `test_matrix.py` checks their deliveries and warnings.
    Combination(name=f"matrix-{row.__name__.replace('_', '-')}", build=row, consumers=None, context=matrix.CONTEXT)
    for row in matrix.ROWS
)

ALL = (*OWN, *OF_THE_MATRIX)

IN_MAKE_TEST = (
    "all-feature-flags-and-keys",
    "bucket-and-key-of-two-siblings",
    "imported-alias",
    "nested-with-resources-of-its-parent",
    "queue-and-bucket-of-a-sibling",
    "two-pipelines-on-the-same-keys",
)
"""The combinations that `make test` synthesises."""
