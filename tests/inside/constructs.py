"""Parts of the constructs. The import starts the CDK."""

from constructs import Construct

from cdk_intake_ledger.arguments.annotations import accepts
from cdk_intake_ledger.audit.athena import PARTITION, TABLES
from cdk_intake_ledger.audit.join import DUCKDB, ORC
from cdk_intake_ledger.bundling import processor_folder
from cdk_intake_ledger.bundling.assets import made_code
from cdk_intake_ledger.bundling.entrypoint import argument_type, entrypoint_problems
from cdk_intake_ledger.bundling.imports import missing_imports
from cdk_intake_ledger.bundling.wheels import MACHINES, _tidy, _uv_settings, cache_folder
from cdk_intake_ledger.functions import layer
from cdk_intake_ledger.key_access import TABLE_KEY_ACTIONS, TABLE_READ_KEY_ACTIONS, imported_alias
from cdk_intake_ledger.monitoring import intake_monitoring
from cdk_intake_ledger.options.audit_scale import LOOK_RATE
from cdk_intake_ledger.pipeline_checks import CHECKS, plan_problems
from cdk_intake_ledger.resources.final_template import _app, expected_in
from cdk_intake_ledger.sets.patterns import can_match_both
from cdk_intake_ledger.validation import nag_suppressions, registry
from cdk_intake_ledger.validation.nag_compliance import COMPLIANCE_SUPPRESSIONS
from cdk_intake_ledger.validation.plan import DAY, HOUR, MINUTE, UNKNOWN, Plan, function_timeout, span
from cdk_intake_ledger.validation.plan_check import Check
from cdk_intake_ledger.validation.registry import ID_PREFIX, Rule, Severity, Subject, all_rules
from cdk_intake_ledger.validation.reporting import WARNING_PREFIX


def unchecked(scope: Construct) -> None:
    """Let the final template of a construct differ from its plan."""
    gone, expected = expected_in(scope), _app(scope).expected
    for place in [place for place, one in expected.items() if any(one is other for other in gone)]:
        del expected[place]
