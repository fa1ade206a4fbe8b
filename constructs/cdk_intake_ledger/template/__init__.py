"""One CloudFormation template of a pipeline, for teams that have no CDK app in Python."""
