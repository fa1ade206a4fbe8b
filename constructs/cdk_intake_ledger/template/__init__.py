"""One CloudFormation template of a pipeline, for teams that have no CDK app in Python."""

from cdk_intake_ledger.template.files import TemplateFiles, write_template
from cdk_intake_ledger.template.options import TemplateOptions

__all__ = ["TemplateFiles", "TemplateOptions", "write_template"]
