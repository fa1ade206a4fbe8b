"""The seconds of durations."""

from functools import lru_cache

from aws_cdk import Duration


@lru_cache(maxsize=256)
def to_seconds(duration: Duration) -> float:
    """Convert a duration to seconds. A token becomes a negative number, which stands for it.

    A duration never changes, and the CDK's process is asked only once for each.

    Raises:
        RuntimeError: It is a token in another unit than seconds.

    """
    return duration.to_seconds(integral=False)
