"""The bucket, the queue and the table of a pipeline, and their fixed names."""

from cdk_intake_ledger.resources.bucket import (
    EVENT_BRIDGE_ENABLED,
    bucket_props_problems,
    intake_bucket,
    private_bucket,
)
from cdk_intake_ledger.resources.cloudformation import accounts_of, environments_of, properties_of
from cdk_intake_ledger.resources.event_sources import other_consumer_problems
from cdk_intake_ledger.resources.existing_queue import dead_letter_queue_of
from cdk_intake_ledger.resources.final_template import FinalTemplates, expect, expected_in, resource_of
from cdk_intake_ledger.resources.fixed_names import fix_names, pipeline_name_problems, tag
from cdk_intake_ledger.resources.ledger_table import IntakeLedger
from cdk_intake_ledger.resources.log_encryption import LogEncryption
from cdk_intake_ledger.resources.queue import IntakeQueue
from cdk_intake_ledger.resources.queue_access import allow_service, statement_text
from cdk_intake_ledger.validation.limits import MAX_NAME

__all__ = [
    "EVENT_BRIDGE_ENABLED",
    "MAX_NAME",
    "FinalTemplates",
    "IntakeLedger",
    "IntakeQueue",
    "LogEncryption",
    "accounts_of",
    "allow_service",
    "bucket_props_problems",
    "dead_letter_queue_of",
    "environments_of",
    "expect",
    "expected_in",
    "fix_names",
    "intake_bucket",
    "other_consumer_problems",
    "pipeline_name_problems",
    "private_bucket",
    "properties_of",
    "resource_of",
    "statement_text",
    "tag",
]
