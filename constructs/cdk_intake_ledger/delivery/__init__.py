"""The path of events from the bucket to the queue, for chosen keys."""

from cdk_intake_ledger.delivery.bucket_notifications import has_cdk_notifications, in_stack_of, owned_resource, owner_of
from cdk_intake_ledger.delivery.bucket_validation import OUTPUT_SID, BucketValidation, ConsumedQueue
from cdk_intake_ledger.delivery.delivery_problems import bucket_problems, default_delivery_mode, delivery_mode_problems
from cdk_intake_ledger.delivery.event_delivery import add_notifications
from cdk_intake_ledger.delivery.imported_buckets import register_import
from cdk_intake_ledger.delivery.key_filters import (
    KeyPattern,
    filter_problems,
    key_text_problems,
    parse_filters,
    read_patterns,
    warn_about_filters,
    warn_about_key_text,
)
from cdk_intake_ledger.delivery.lifecycle_rules import LifecycleValidation

__all__ = [
    "OUTPUT_SID",
    "BucketValidation",
    "ConsumedQueue",
    "KeyPattern",
    "LifecycleValidation",
    "add_notifications",
    "bucket_problems",
    "default_delivery_mode",
    "delivery_mode_problems",
    "filter_problems",
    "has_cdk_notifications",
    "in_stack_of",
    "key_text_problems",
    "owned_resource",
    "owner_of",
    "parse_filters",
    "read_patterns",
    "register_import",
    "warn_about_filters",
    "warn_about_key_text",
]
