"""Process several messages of a batch at the same time."""

from intake_ledger.consumer.threads.group_by_key import group_by_key
from intake_ledger.consumer.threads.parallel_groups import ParallelGroups, exit_now
from intake_ledger.consumer.threads.processor_threads import ProcessorThreads

__all__ = ["ParallelGroups", "ProcessorThreads", "exit_now", "group_by_key"]
