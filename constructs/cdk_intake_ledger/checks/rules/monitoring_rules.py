"""Rules about the choice of alarms."""

from cdk_intake_ledger.checks.registry import Subject

SUBJECT = Subject("Alarms")

ALARM_NAME = SUBJECT.error(
    "alarm-name",
    inputs=("alarms", "omit_alarms", "thresholds"),
    what="{option} has {name!r}, which is no alarm here",
    why="it would have no effect",
    fix="Write {right}, or remove it",
)
ALARM_THRESHOLD = SUBJECT.error(
    "alarm-threshold",
    inputs=("thresholds",),
    what="the threshold of {name} is {value}",
    why="an alarm compares its metric with a finite number, and metrics without events have no values",
    fix="Set a finite threshold above 0",
)
ALARM_ACTION = SUBJECT.error(
    "alarm-action",
    inputs=("alarm_actions",),
    what="alarm_actions has the {action}",
    why="the composite alarms carry the actions, and CloudWatch lets them start no action of EC2 or Auto Scaling",
    fix="Pass a topic, a LambdaAction, an SsmAction or an SsmIncidentAction, or add the action to one of the alarms",
)
METRIC_NAME = SUBJECT.error(
    "metric-name",
    inputs=("metric_name",),
    what="metric_name is {name!r}, which no function of the library writes",
    why="a metric without data shows nothing, and its alarms never go off",
    fix="Write {right}. For a metric that your processor writes, use cloudwatch.Metric",
)
METRIC_OF_OTHER_KIND = SUBJECT.error(
    "metric-of-other-kind",
    inputs=("metric_name",),
    what="metric_name is {name!r}, and {construct} does not write it: {reason}",
    why="a metric without data shows nothing, and its alarms never go off",
    fix="Watch it on the {others}",
)
ALARM_NOT_CHOSEN = SUBJECT.error(
    "alarm-not-chosen",
    inputs=("thresholds", "alarms", "omit_alarms"),
    what="the threshold of {name} is {value}, and {option} leaves this alarm out",
    why="it would have no effect",
    fix="Remove the threshold, or {choose}",
)
