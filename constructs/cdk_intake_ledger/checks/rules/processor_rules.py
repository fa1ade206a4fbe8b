"""Rules about the processor: its entry point, its source, its folder and its function."""

from cdk_intake_ledger.checks.limits import MAX_ENVIRONMENT
from cdk_intake_ledger.checks.registry import Subject
from intake_ledger.protocol.settings import VERSION_BYTES

SUBJECT = Subject("Processor")

ENTRYPOINT_FORMAT = SUBJECT.error(
    "entrypoint-format",
    inputs=("entrypoint",),
    what="entrypoint {entrypoint!r} is not of the form 'module:function'",
    why="the consumer imports the module and calls the function",
    fix="Write it as in 'invoices:process'",
)
PROCESSOR_PATH = SUBJECT.error(
    "processor-path",
    inputs=("path",),
    what="processor path '{path}' {state} (looked from '{current}')",
    why="the processor's module is read from there",
    fix="Pass the directory that has the processor's module",
)
RUNTIME_HIDDEN = SUBJECT.error(
    "runtime-hidden",
    inputs=("path",),
    what="processor path '{path}': {source} has intake_ledger",
    why="it would hide the runtime in the layer",
    fix="Remove it, or cdk-intake-ledger, from there",
)
MODULE_MISSING = SUBJECT.error(
    "module-missing",
    inputs=("path", "entrypoint"),
    what="processor module {module!r} does not exist in '{path}'",
    why="the modules there are {found}",
    fix="Name an existing module in the entrypoint",
)
MODULE_SYNTAX = SUBJECT.error(
    "module-syntax",
    inputs=("path", "entrypoint"),
    what="processor module '{source}' is not valid Python{where}",
    why="{error}",
    fix="Correct the module",
)
FUNCTION_MISSING = SUBJECT.error(
    "function-missing",
    inputs=("path", "entrypoint"),
    what="processor function {function!r} does not exist in '{source}'",
    why="the functions there are {found}",
    fix="Name an existing function in the entrypoint",
)
FUNCTION_KIND = SUBJECT.error(
    "function-kind",
    inputs=("entrypoint",),
    what="processor {function!r} in '{source}' is {kind}",
    why="the consumer calls a plain function",
    fix="Write it as a plain function",
)
FUNCTION_ARGUMENTS = SUBJECT.error(
    "function-arguments",
    inputs=("entrypoint",),
    what="processor function {function!r} in '{source}' cannot be called with one argument",
    why="the consumer passes the change and nothing else",
    fix="Let the function take one argument",
)
FUNCTION_ARGUMENT_TYPE = SUBJECT.error(
    "function-argument-type",
    inputs=("entrypoint",),
    what="the processor {entrypoint!r} takes a {found}",
    why="this construct calls it with a {wanted}, so each call would fail",
    fix="Name the function for a {wanted}, or use the construct whose processor takes a {found}",
)
FUNCTION_IS_GENERATOR = SUBJECT.error(
    "function-is-generator",
    inputs=("entrypoint",),
    what="processor function {function!r} in '{source}' is a generator",
    why="a call of it does nothing",
    fix="Remove the `yield`",
)
FUNCTION_RETURN_TYPE = SUBJECT.error(
    "function-return-type",
    inputs=("entrypoint",),
    what="processor function {function!r} in '{source}' returns {annotation}",
    why="the consumer would reject each change after its effect, because {types} is not a commit",
    fix="Return a Commit, a text or None",
)
IMAGE_FOLDER = SUBJECT.error(
    "image-folder",
    inputs=("image",),
    what="processor image '{folder}' does not exist (looked from '{current}')",
    why="the image is built from this folder",
    fix="Pass the folder that has the Dockerfile",
)
IMAGE_DOCKERFILE = SUBJECT.error(
    "image-dockerfile",
    inputs=("image",),
    what="processor image '{folder}' has no Dockerfile",
    why="the image is built from it",
    fix="Pass the folder that has the Dockerfile, or a lambda_.DockerImageCode",
)
ENVIRONMENT_NAME = SUBJECT.error(
    "environment-name",
    inputs=("environment",),
    what="processor environment has {name!r}",
    why="{why}",
    fix="Use another name",
)
ENVIRONMENT_SIZE = SUBJECT.error(
    "environment-size",
    inputs=("environment",),
    what="processor environment has {size:,} bytes of names and values",
    why=f"Lambda allows {MAX_ENVIRONMENT:,} for all variables of a function, with those of the construct",
    fix="Keep long values in a file of the processor, or in Parameter Store, and pass their name",
)
PROCESSOR_VERSION = SUBJECT.error(
    "processor-version",
    inputs=("processor_version",),
    what="processor_version is {version!r}",
    why=f"rows keep {VERSION_BYTES} characters of it, so that later versions could look the same",
    fix=f"Pass 1 to {VERSION_BYTES} visible ASCII characters, such as the first {VERSION_BYTES} of a commit's hash",
)
RUNTIME_VERSION = SUBJECT.error(
    "runtime-version",
    inputs=("runtime",),
    what="processor runtime is {name!r}",
    why="the consumer needs Python 3.12 or later",
    fix="Set lambda_.Runtime.PYTHON_3_12 or later",
)
MANAGED_RUNTIME = SUBJECT.error(
    "managed-runtime",
    inputs=("runtime", "capacity_provider"),
    what="processor runtime is {name!r} and the function has a capacity_provider",
    why="Lambda Managed Instances needs Python 3.13 or later",
    fix="Set lambda_.Runtime.PYTHON_3_13 or later",
)
MANAGED_NETWORK = SUBJECT.error(
    "managed-network",
    inputs=("network", "capacity_provider"),
    what="the processor has a capacity_provider and the pipeline has a network",
    why="the function's network is that of the capacity provider's instances",
    fix="Omit network. The audit then runs outside of the VPC",
)
WHEELS_PLATFORM = SUBJECT.error(
    "wheels-platform",
    inputs=("path", "runtime", "architecture"),
    what="processor path '{path}' has a {requirements}, and the function runs Python {python!r} on {architecture!r}",
    why="wheels are installed at synthesis for a runtime that is known, and for arm64 or x86_64",
    fix="Set a plain runtime and one of these architectures",
)
POWERTOOLS_VERSION = SUBJECT.error(
    "powertools-version",
    inputs=("path",),
    what="processor path '{path}': {requirements} installs aws-lambda-powertools {version}",
    why="it would hide the version in the layer",
    fix="Pin a version {major}.x, or remove it",
)
FILE_IN_FOLDER_AND_WHEEL = SUBJECT.error(
    "file-in-folder-and-wheel",
    inputs=("path",),
    what="processor path '{path}' has {name!r}, and {requirements} installs it too",
    why="the asset can have only one of them",
    fix="Remove one of the two",
)
CODE_SIZE = SUBJECT.error(
    "code-size",
    inputs=("path",),
    what="processor path '{path}' and its wheels have {size:,.0f} MB unpacked",
    why="Lambda takes 250 MB with all layers",
    fix="Pin fewer distributions, or use Processor.from_image",
)
IMPORT_NOT_INSTALLED = SUBJECT.error(
    "import-not-installed",
    inputs=("path",),
    what="processor module '{source}' line {line} imports {name!r}",
    why="neither the folder, its {requirements} nor Lambda has this module",
    fix="Add {distribution}==<version> to {requirements}",
)
IMPORT_WITHOUT_REQUIREMENTS = SUBJECT.error(
    "import-without-requirements",
    inputs=("path", "layers"),
    what="processor module '{source}' line {line} imports {name!r}",
    why="neither the folder nor Lambda has this module",
    fix="Pin it in '{requirements}' ({distribution}==<version>), or pass the layer that has it",
)
