"""One CloudFormation template of a pipeline, for teams that have no CDK app in Python."""

from cdk_intake_ledger.template.files import TemplateFiles, write_template
from cdk_intake_ledger.template.options import TAKEN_NAMES, TemplateOptions, WrongTemplateOptions
from cdk_intake_ledger.template.stack import TemplateStack

__all__ = ["TAKEN_NAMES", "TemplateFiles", "TemplateOptions", "TemplateStack", "WrongTemplateOptions", "write_template"]
