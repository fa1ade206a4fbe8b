"""The Lambda functions of a pipeline, and the processor."""

from cdk_intake_ledger.functions.consumer import LATE_AFTER, IntakeConsumer, hold_seconds, options_environment
from cdk_intake_ledger.functions.consumer_function import MAPPING, ConsumerFunction
from cdk_intake_ledger.functions.executions import Executions
from cdk_intake_ledger.functions.lambda_function import (
    FunctionCode,
    FunctionNetworking,
    intake_function,
    record_version,
)
from cdk_intake_ledger.functions.layer import TESTED_RUNTIME, archive, runtime_layer
from cdk_intake_ledger.functions.network_endpoints import OF_MESSAGES, OF_OBJECTS, warn_without_endpoints
from cdk_intake_ledger.functions.pipeline_resources import (
    PipelineResources,
    existing_resources,
    grant_keys,
    in_seconds,
    in_text,
)
from cdk_intake_ledger.functions.processor import Processor

__all__ = [
    "LATE_AFTER",
    "MAPPING",
    "OF_MESSAGES",
    "OF_OBJECTS",
    "TESTED_RUNTIME",
    "ConsumerFunction",
    "Executions",
    "FunctionCode",
    "FunctionNetworking",
    "IntakeConsumer",
    "PipelineResources",
    "Processor",
    "archive",
    "existing_resources",
    "grant_keys",
    "hold_seconds",
    "in_seconds",
    "in_text",
    "intake_function",
    "options_environment",
    "record_version",
    "runtime_layer",
    "warn_without_endpoints",
]
