"""Rules about a requirements.txt and the wheels that are installed from it at synthesis."""

from cdk_intake_ledger.checks.registry import Subject

SUBJECT = Subject("Requirements and wheels")

REQUIREMENTS_UNREADABLE = SUBJECT.error(
    "requirements-unreadable",
    inputs=("path",),
    what="'{path}' cannot be read ({error})",
    why="the wheels follow from it",
    fix="Write a file of UTF-8 text",
)
REQUIREMENT_OPTION = SUBJECT.error(
    "requirement-option",
    inputs=("path",),
    what="{where} is {text!r}, which is not supported",
    why="only pinned wheels of a package index are installed for Lambda",
    fix="Remove the option, or copy the modules into the folder, or build a wheel for your package index and pin that",
)
REQUIREMENT_FORMAT = SUBJECT.error(
    "requirement-format",
    inputs=("path",),
    what="{where} is {text!r}, which is not a requirement",
    why="{error}",
    fix="Write name==version, or `name @ https://...whl#sha256=...` for a wheel, or name its folder by --find-links",
)
REQUIREMENT_URL_HASH = SUBJECT.error(
    "requirement-url-hash",
    inputs=("path",),
    what="{where} is {text!r}, a URL without a hash",
    why="the content of a URL can change",
    fix="Append #sha256=... of the wheel",
)
REQUIREMENT_PINNED = SUBJECT.error(
    "requirement-pinned",
    inputs=("path",),
    what="{where} is {text!r}, which is not pinned",
    why="the same file must always give the same wheels",
    fix="Write {name}=={version}, or let `uv pip compile` or `pip-compile` pin everything",
)
PIP_SETTINGS = SUBJECT.error(
    "pip-settings",
    inputs=("path",),
    what="pip's configuration '{path}' cannot be read",
    why="{error}",
    fix="Correct it, or run `pip install pip` if there is none",
)
PIP_SETTING = SUBJECT.error(
    "pip-setting",
    inputs=("path",),
    what="pip's setting {name} is {value!r}, and uv installs the wheels",
    why="uv has it in another form",
    fix="Set {variable} too",
)
WHEELS_MISSING = SUBJECT.error(
    "wheels-missing",
    inputs=("path", "runtime", "architecture"),
    what="{origin} cannot be installed for {target}",
    why="{reason}",
    fix="Pin versions that have a wheel, check the package index, or use a layer or Processor.from_image",
)
UV_MISSING = SUBJECT.error(
    "uv-missing",
    inputs=("path",),
    what="{origin} cannot be installed",
    why="{python} has no uv",
    fix="Run `pip install uv`",
)
