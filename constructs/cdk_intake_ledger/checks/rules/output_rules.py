"""Rules about outputs in S3, which `grant_output` and the whole app must follow."""

from cdk_intake_ledger.checks.registry import Subject

SUBJECT = Subject("Outputs in S3")

OUTPUT_ELSEWHERE = SUBJECT.error(
    "output-elsewhere",
    inputs=("processor",),
    what="grant_output was called, and the processor is {processor}",
    why="it writes with its own role, and change.output runs in the consumer only",
    fix="Grant the bucket to its role, and make the writes conditional on the change's fence",
)
OUTPUT_CALLS_ITSELF = SUBJECT.error(
    "output-calls-itself",
    inputs=("bucket", "filters", "prefix"),
    what="the outputs in {bucket} have the prefix {prefix!r}, and it processes the prefix {intake!r}",
    why="each output would call the processor again, without an end",
    fix="Use two prefixes of which neither begins with the other, or another bucket",
)
OUTPUT_IN_OTHER_INTAKE = SUBJECT.error(
    "output-in-other-intake",
    inputs=("bucket", "filters", "prefix"),
    what="the outputs in {bucket} have the prefix {prefix!r}, and {other} processes the prefix {intake!r}",
    why="that pipeline would process each output, and each tombstone of a removed output, as an upload",
    fix="Use two prefixes of which neither begins with the other, or another bucket",
)
OUTPUTS_OVERLAP = SUBJECT.error(
    "outputs-overlap",
    inputs=("bucket", "prefix"),
    what=("the outputs in {bucket} have the prefix {prefix!r}, and the outputs of {other} have the prefix {theirs!r}"),
    why="fences of two pipelines cannot be compared, so neither could tell a late worker",
    fix="Give each pipeline a prefix that does not begin with the other",
)
REJECTS_IN_OUTPUTS = SUBJECT.error(
    "rejects-in-outputs",
    inputs=("bucket", "prefix"),
    what="the outputs in {bucket} have the prefix {prefix!r}, and the rejected rows have the prefix {rejects!r}",
    why="an output of the processor and the rejected rows of an object could have the same key",
    fix="Give keep_rejects a prefix that does not begin with that of grant_output, and the other way round",
)
REJECTS_TWICE = SUBJECT.error(
    "rejects-twice",
    inputs=("bucket", "prefix"),
    what="keep_rejects was called twice, and the rejected rows are kept in {place}",
    why="a newer state could not remove the rejected rows of an older one from the other place",
    fix="Call it once",
)
REJECTS_AFTER_WORKERS = SUBJECT.error(
    "rejects-after-workers",
    inputs=("bucket", "prefix"),
    what="keep_rejects was called after IntakeWorkers were made",
    why="their containers would not know the place",
    fix="Call keep_rejects before",
)
OUTPUT_LIFECYCLE_UNKNOWN = SUBJECT.warning(
    "output-lifecycle-unknown",
    inputs=("bucket", "prefix"),
    what="CDK cannot add lifecycle rules to {bucket}, since it is imported or not an s3.Bucket",
    why="tombstones of removed outputs and the parts of unfinished uploads would stay forever",
    fix="Add these rules to its lifecycle configuration: {rules}",
)
OUTPUT_BUCKET_POLICY = SUBJECT.warning(
    "output-bucket-policy",
    inputs=("bucket",),
    what="the bucket {bucket} is in account {theirs}, and the pipeline is in account {ours}",
    why="S3 refuses the outputs unless the bucket's policy allows them too",
    fix="Add these statements to its policy: {statements}",
)
