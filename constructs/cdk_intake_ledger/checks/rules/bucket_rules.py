"""Rules about the bucket, its filters, and the delivery of its events."""

from cdk_intake_ledger.checks.limits import MAX_FILTER_BYTES, MAX_FILTERS
from cdk_intake_ledger.checks.registry import Subject

SUBJECT = Subject("Bucket, filters and delivery")

EXISTING_DELIVERY_NEEDS_BOTH = SUBJECT.error(
    "existing-delivery-needs-both",
    inputs=("delivery", "bucket", "queue"),
    what="delivery is EXISTING without an existing bucket and an existing queue",
    why="the pipeline adds no notification, so a new queue would receive nothing",
    fix="Pass both bucket and queue, or omit delivery",
)
EXISTING_DELIVERY_SENDS_NOTHING = SUBJECT.error(
    "existing-delivery-sends-nothing",
    inputs=("delivery", "bucket", "queue", "filters"),
    what="delivery is EXISTING and nothing in the app sends the changes of {filter} of {bucket} to {queue}",
    why="{why}the pipeline adds no notification, so that no change is processed until the audit finds it",
    fix="Call bucket.add_event_notification with s3n.SqsDestination(queue) for s3.EventType.OBJECT_CREATED, "
    "OBJECT_REMOVED, LIFECYCLE_EXPIRATION and OBJECT_RESTORE_COMPLETED, or omit delivery",
)
EXISTING_DELIVERY_WITHOUT_REMOVALS = SUBJECT.error(
    "existing-delivery-without-removals",
    inputs=("delivery", "bucket", "queue", "filters", "deletes"),
    what="delivery is EXISTING with deletes=True, and the app sends no removals of {filter} of {bucket} to {queue}",
    why="the processor is not called for a removed object until the audit finds it",
    fix="Also send s3:ObjectRemoved:* and s3:LifecycleExpiration:* to the queue, or omit deletes",
)
EXISTING_DELIVERY_PARTLY = SUBJECT.warning(
    "existing-delivery-partly",
    inputs=("delivery", "bucket", "queue", "filters"),
    what="delivery is EXISTING, and {queue} gets {gets} of {filter} of {bucket}",
    why="such changes wait for the next audit. The ledger needs removals too, to know that a state is over",
    fix="Send these events of these keys to the queue, or acknowledge the warning",
)
EXISTING_DELIVERY_UNKNOWN = SUBJECT.warning(
    "existing-delivery-unknown",
    inputs=("delivery", "bucket", "queue", "filters"),
    what=(
        "delivery is EXISTING, and what sends the changes of {filter} of {bucket} to {queue} cannot be seen at "
        "synthesis"
    ),
    why="without an event, a change waits for the next audit",
    fix=(
        "Let it send s3:ObjectCreated:*, s3:ObjectRemoved:*, s3:LifecycleExpiration:* and s3:ObjectRestore:Completed. "
        "The audit compares the deployed notifications and rules every 15 minutes"
    ),
)
BUCKET_IN_SAME_ENVIRONMENT = SUBJECT.error(
    "bucket-in-same-environment",
    inputs=("bucket",),
    what="the bucket's {name} is {theirs} and the pipeline's {name} is {ours}",
    why="S3 does not send events to another {name}",
    fix="Deploy both in one {name}",
)
S3_DELIVERY_IN_SAME_STACK = SUBJECT.error(
    "s3-delivery-in-same-stack",
    inputs=("delivery", "bucket"),
    what="delivery is S3 and the bucket is in another stack",
    why="the notification would make the two stacks depend on each other",
    fix="Omit delivery, or import the bucket by its name",
)
NOTIFICATIONS_OVERLAP = SUBJECT.error(
    "notifications-overlap",
    inputs=("bucket", "filters", "delivery"),
    what=(
        "the filter for {filter} overlaps an existing notification of the bucket, which sends {event} for {other} to "
        "{destination}"
    ),
    why="S3 refuses two notifications about the same keys",
    fix=(
        "Use filters that do not overlap, remove the other notification if the pipeline replaces it, or set "
        "delivery=Delivery.EVENTBRIDGE"
    ),
)
FILTER_COUNT = SUBJECT.error(
    "filter-count",
    inputs=("filters",),
    what="the pipeline has {count} filters",
    why=f"S3 takes at most {MAX_FILTERS} for a pipeline",
    fix="Use fewer and broader filters",
)
FILTERS_OVERLAP = SUBJECT.error(
    "filters-overlap",
    inputs=("filters",),
    what="the filters for {one} and {other} overlap",
    why="S3 refuses two notifications about the same keys",
    fix="Keep the broader one",
)
FILTER_LENGTH = SUBJECT.error(
    "filter-length",
    inputs=("filters",),
    what="a filter has {length} bytes in prefix and suffix",
    why=f"S3 allows {MAX_FILTER_BYTES:,}",
    fix="Shorten it",
)
KEY_ASTERISK = SUBJECT.error(
    "key-asterisk",
    inputs=("filters", "prefix"),
    what="{name} {value!r} has an asterisk",
    why="S3 has no wildcards in filters and prefixes, and would compare it with an asterisk in the key",
    fix="Remove it",
)
KEY_IS_URI = SUBJECT.error(
    "key-is-uri",
    inputs=("filters", "prefix", "form"),
    what="{name} {value!r} is a URI",
    why="it is compared with keys, which have neither a scheme nor a bucket",
    fix="Write {key!r}",
)
KEY_BEGINS_WITH_SLASH = SUBJECT.warning(
    "key-begins-with-slash",
    inputs=("filters", "prefix", "form"),
    what="{name} {value!r} begins with {begin!r}",
    why="keys begin with it only if the sender put it there, as in s3://bucket//in/",
    fix="Write {key!r}, or acknowledge the warning",
)
KEY_BLANK = SUBJECT.warning(
    "key-blank",
    inputs=("filters", "prefix", "form"),
    what="{name} {value!r} has white space at its end, or a line break",
    why="keys are compared with it as it is",
    fix="Remove it, or acknowledge the warning if the keys have it",
)
FILTER_OF_MARKERS = SUBJECT.warning(
    "filter-of-markers",
    inputs=("filters", "directory_markers"),
    what="the filter for {filter} matches the keys of directory markers only",
    why="the pipeline skips empty objects with such keys",
    fix="Remove the suffix, pass directory_markers=True, or acknowledge the warning",
)
KEY_LOOKS_ENCODED = SUBJECT.warning(
    "key-looks-encoded",
    inputs=("filters", "prefix", "form"),
    what="{name} {value!r} looks percent-encoded",
    why="it is encoded where S3 asks for it, and would be encoded a second time",
    fix="Write it as it is in the key",
)
KEY_PLACEHOLDER = SUBJECT.warning(
    "key-placeholder",
    inputs=("filters", "prefix", "form"),
    what="{name} {value!r} has {found!r}",
    why="these characters have no meaning, and are compared with the same characters in the key",
    fix="Remove them, or acknowledge the warning if the keys have them",
)
NOTIFICATIONS_REPLACED = SUBJECT.error(
    "notifications-replaced",
    inputs=("bucket",),
    what="a notification or EventBridge was added to {bucket} after the pipeline was created",
    why="CDK's notifications replace the bucket's whole configuration, including the pipeline's notifications",
    fix="Create the bucket, call add_event_notification or the like, and then pass the bucket to the pipeline",
)
EVENT_BRIDGE_SWITCHED_OFF = SUBJECT.error(
    "event-bridge-switched-off",
    inputs=("bucket", "delivery"),
    what="a notification was added to {bucket} after the pipeline was created",
    why="CDK's notifications switch EventBridge off again",
    fix="Call add_event_notification or the like before you create the pipeline, or also call "
    "enable_event_bridge_notification",
)
BUCKET_IMPORTED_TWICE = SUBJECT.error(
    "bucket-imported-twice",
    inputs=("bucket", "delivery"),
    what="{bucket} and {other} are imports of the same bucket {name}",
    why="CDK would write its notifications twice at the same time, and one could remove those of the other",
    fix="Import the bucket once, and pass it to both pipelines",
)
BUCKET_VERSIONING_UNKNOWN = SUBJECT.warning(
    "bucket-versioning-unknown",
    inputs=("bucket",),
    what="the versioning of the imported bucket {bucket} cannot be seen at synthesis",
    why=(
        "without versioning, two uploads of the same bytes are one change, and the audit cannot tell which version was "
        "processed"
    ),
    fix="Turn on versioning where the bucket is created",
)
EVENT_BRIDGE_UNKNOWN = SUBJECT.warning(
    "event-bridge-unknown",
    inputs=("bucket", "delivery"),
    what="the EventBridge setting of the imported bucket {bucket} cannot be seen at synthesis",
    why="without it no event arrives",
    fix="Turn on EventBridge where the bucket is created",
)
BUCKET_PROPS_OF_EXISTING = SUBJECT.error(
    "bucket-props-of-existing",
    inputs=("bucket", "bucket_props"),
    what="bucket_props was passed together with the bucket {bucket}",
    why="they are the properties of a bucket that the pipeline makes",
    fix="Omit one of them, or set the properties where the bucket is created",
)
BUCKET_PROPS_BESIDE_OPTION = SUBJECT.error(
    "bucket-props-beside-option",
    inputs=("bucket_props",),
    what="bucket_props has {name}",
    why="the pipeline's option {option} sets it for all resources of the pipeline",
    fix="Pass {option} to the pipeline instead",
)
BUCKET_PROPS_REFUSED = SUBJECT.error(
    "bucket-props-refused",
    inputs=("bucket_props",),
    what="the CDK refuses bucket_props",
    why="{error}",
    fix="Change or omit this property",
)
BUCKET_OF_OTHER_ACCOUNT = SUBJECT.warning(
    "bucket-of-other-account",
    inputs=("bucket",),
    what="the bucket {bucket} is in account {theirs}, and the pipeline is in account {ours}",
    why="S3 refuses the pipeline's requests unless the bucket's policy allows them, and those of its key if it has one",
    fix=(
        "Add these statements to its policy, and kms:Decrypt for account {ours} to the policy of its key: {statements}"
    ),
)
EVENTS_OF_OTHER_ACCOUNT = SUBJECT.warning(
    "events-of-other-account",
    inputs=("bucket", "delivery"),
    what="the rule for the events of the bucket {bucket} is on the event bus of account {ours}",
    why="S3 sends them to the event bus of account {theirs} only",
    fix=(
        "Add a rule there that sends the events of this pattern to the default event bus of account {ours}: {pattern}. "
        "Add this statement to the policy of that bus: {statement}"
    ),
)
VERSIONS_EXPIRE_EARLY = SUBJECT.error(
    "versions-expire-early",
    inputs=("bucket", "queue"),
    what="{bucket} {does}",
    why="a message can wait for {message_life} in the queue and the dead-letter queue",
    fix="Keep overwritten versions for at least {message_life}",
)
OBJECTS_EXPIRE_EARLY = SUBJECT.error(
    "objects-expire-early",
    inputs=("bucket", "filters", "queue"),
    what="{bucket} {does}",
    why="a message can wait for {message_life} in the queue and the dead-letter queue, and then finds no object",
    fix="Keep objects readable for at least {message_life}, or limit the rule to keys outside of the filters",
)
OBJECTS_MAY_EXPIRE_EARLY = SUBJECT.warning(
    "objects-may-expire-early",
    inputs=("bucket", "filters", "queue"),
    what="{bucket} {does}, if they have the tag {tags}",
    why="a message can wait for {message_life} in the queue and the dead-letter queue",
    fix="Give the tag to objects only after they were processed, and acknowledge the warning",
)
BUCKET_LIFECYCLE_UNKNOWN = SUBJECT.warning(
    "bucket-lifecycle-unknown",
    inputs=("bucket",),
    what="the lifecycle rules of the imported bucket {bucket} cannot be seen at synthesis",
    why="a rule that removes or archives objects sooner than {message_life} takes them from messages that wait",
    fix="Keep objects readable for that time. The audit checks the deployed rules every 15 minutes",
)
PROCESSOR_CALLS_ITSELF = SUBJECT.error(
    "processor-calls-itself",
    inputs=("bucket", "filters"),
    what="the processor may write {pattern!r} into {bucket}, and the pipeline processes {filter}",
    why="it would call itself",
    fix="Set a filter with a prefix, and let the processor write under another prefix",
)
PROCESSOR_MAY_CALL_ITSELF = SUBJECT.warning(
    "processor-may-call-itself",
    inputs=("bucket", "filters"),
    what="the processor may write {pattern!r} into {bucket}, and the pipeline processes {filter}",
    why="an object that the processor writes there calls it again",
    fix="Let the processor write under another prefix",
)
