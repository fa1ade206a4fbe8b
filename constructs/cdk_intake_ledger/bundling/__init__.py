"""A processor's folder as a Lambda asset, with the wheels of its requirements.

Names are imported at their first use: a processor without requirements needs neither `packaging` nor uv.
"""

from typing import TYPE_CHECKING

from cdk_intake_ledger._lazy import lazily

if TYPE_CHECKING:
    from cdk_intake_ledger.bundling.assets import LAYER_FOLDER, wheel_code
    from cdk_intake_ledger.bundling.entrypoint import form_problem
    from cdk_intake_ledger.bundling.imports import LAMBDA_MODULES
    from cdk_intake_ledger.bundling.processor_folder import ProcessorFolder
    from cdk_intake_ledger.bundling.wheels import WheelError, install, parse_requirements, read_requirements

__all__ = [
    "LAMBDA_MODULES",
    "LAYER_FOLDER",
    "ProcessorFolder",
    "WheelError",
    "form_problem",
    "install",
    "parse_requirements",
    "read_requirements",
    "wheel_code",
]

# mypy would accept any name from a module that has a `__getattr__`.
if not TYPE_CHECKING:
    __getattr__ = lazily(
        __name__,
        {
            "LAMBDA_MODULES": "cdk_intake_ledger.bundling.imports",
            "LAYER_FOLDER": "cdk_intake_ledger.bundling.assets",
            "ProcessorFolder": "cdk_intake_ledger.bundling.processor_folder",
            "WheelError": "cdk_intake_ledger.bundling.wheels",
            "form_problem": "cdk_intake_ledger.bundling.entrypoint",
            "install": "cdk_intake_ledger.bundling.wheels",
            "parse_requirements": "cdk_intake_ledger.bundling.wheels",
            "read_requirements": "cdk_intake_ledger.bundling.wheels",
            "wheel_code": "cdk_intake_ledger.bundling.assets",
        },
    )
