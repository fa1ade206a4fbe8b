"""A plugin of pytest that silences jsii's banner about old releases of Node.js.

The banner has ten lines and comes with each start of Node.js, also for releases that the CDK supports. jsii reads the
variables when a test first imports the CDK. Set one of them yourself, for example to an empty text, to see the banner.
"""

import os

TESTED_NODE_RELEASES = "20,22,24"
VARIABLES = ("JSII_SILENCE_WARNING_END_OF_LIFE_NODE_VERSION", "JSII_SILENCE_WARNING_DEPRECATED_NODE_VERSION")


def pytest_configure() -> None:
    """Set the variables that the environment does not have."""
    for variable in VARIABLES:
        os.environ.setdefault(variable, TESTED_NODE_RELEASES)
