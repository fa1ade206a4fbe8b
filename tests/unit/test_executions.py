"""A state machine as the processor: one execution for each fence, and its outcome in the ledger."""

import pytest

from intake_ledger.protocol import OutcomeKind, Status
from intake_ledger_testing.memory_step_functions import MemoryExecution
from tests.unit.executions_support import ExecutionPipeline


def succeed(pipeline: ExecutionPipeline) -> None:
    pipeline.run(lambda execution: pipeline.end(execution, output={"commit": execution.given["versionId"]}))


class TestOutcomes:
    def test_an_execution_processes_a_version_and_its_output_is_committed(self) -> None:
        """The message of the claim returns, and the event of the end records the commit."""
        pipeline = ExecutionPipeline()
        version = pipeline.put()
        succeed(pipeline)
        row = pipeline.row()
        assert (row.status, row.committed_state, row.commit_id) == (Status.PROCESSED, f"v#{version}", version)
        assert pipeline.versions() == [version]
        assert pipeline.telemetry.outcomes == [OutcomeKind.STARTED, OutcomeKind.COMMITTED]

    @pytest.mark.parametrize("lost", [False, True])
    def test_twenty_objects_with_overwrites_failures_and_poison(self, lost: bool) -> None:
        """Exactly the expected executions start, whether events are lost or not."""
        pipeline = ExecutionPipeline(lost_events=lost)
        first = {f"{n}.csv": pipeline.put(f"{n}.csv") for n in range(20)}
        pipeline.turn()
        pipeline.turn()
        second = {f"{n}.csv": pipeline.put(f"{n}.csv", "2") for n in range(4)}
        failed: set[str] = set()

        def process(execution: MemoryExecution) -> None:
            given = execution.given
            if given["key"] == "19.csv":
                pipeline.end(execution, output={"unprocessable": "poison"})
            elif given["key"] in ("17.csv", "18.csv") and given["key"] not in failed:
                failed.add(given["key"])
                pipeline.end(execution, "FAILED", error="States.TaskFailed")
            else:
                pipeline.end(execution, output={"commit": given["versionId"]})

        pipeline.run(process)
        assert len(pipeline.machine.executions) == 20 + 4 + 2
        for key, version in (first | second).items():
            row = pipeline.row(key)
            wanted = Status.REJECTED if key == "19.csv" else Status.PROCESSED
            assert (row.status, row.version_id) == (wanted, version)
        assert [letter.reason for letter in pipeline.sqs.dead_letters] == ["poison"]
