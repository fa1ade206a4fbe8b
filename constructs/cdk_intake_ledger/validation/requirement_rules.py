"""Rules about a requirements.txt and the wheels that are installed from it at synthesis."""

from cdk_intake_ledger.validation.registry import Subject

SUBJECT = Subject("Requirements and wheels")

REQUIREMENTS_UNREADABLE = SUBJECT.error(
    "requirements-unreadable",
    inputs=("path",),
    what="'{path}' cannot be read ({error})",
    why="the wheels follow from it",
    fix="Write a file of UTF-8 text",
)
REQUIREMENT_QUOTES = SUBJECT.error(
    "requirement-quotes",
    inputs=("path",),
    what="{where} is {text!r}, which cannot be read",
    why="{error}",
    fix="Close the quotation marks",
)
REQUIREMENT_OPTION = SUBJECT.error(
    "requirement-option",
    inputs=("path",),
    what="{where} has {option!r}, which is not supported",
    why="only --hash is supported after a requirement",
    fix="Remove it",
)
REQUIREMENT_PATH = SUBJECT.error(
    "requirement-path",
    inputs=("path",),
    what="{where} is {text!r}, which does not name a distribution in a package index",
    why="only wheels are installed for Lambda",
    fix="Name a wheel as `name @ https://...whl#sha256=...`, or put it into a folder and name that by --find-links",
)
REQUIREMENT_FORMAT = SUBJECT.error(
    "requirement-format",
    inputs=("path",),
    what="{where} is {text!r}, which is not a requirement",
    why="{error}",
    fix="Write name==version",
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
REQUIREMENT_EDITABLE = SUBJECT.error(
    "requirement-editable",
    inputs=("path",),
    what="{where} is {text!r}",
    why="only wheels are installed for Lambda",
    fix="Copy the modules into the folder, or build a wheel for your package index and pin that",
)
REQUIREMENT_PIP_OPTION = SUBJECT.error(
    "requirement-pip-option",
    inputs=("path",),
    what="{where} has the option {name}, which is not supported",
    why="it would change how wheels are chosen",
    fix="Remove it, or let `uv pip compile` or `pip-compile` write a file without it",
)
REQUIREMENT_REPEATED = SUBJECT.error(
    "requirement-repeated",
    inputs=("path",),
    what="{where} is '{text}' and {first_where} is '{first}'",
    why="only one version can be installed",
    fix="Remove one of them",
)
REQUIREMENT_HASH = SUBJECT.error(
    "requirement-hash",
    inputs=("path",),
    what="{where} is '{text}' without a hash, and other lines have one",
    why="without it, a wheel could be exchanged",
    fix="Let `uv pip compile --generate-hashes` write them all, or remove all of them",
)
DEPENDENCIES_HASH = SUBJECT.error(
    "dependencies-hash",
    inputs=("path",),
    what="{origin} has hashes, but no line for {names}",
    why="others need it on {target}",
    fix="Pin all dependencies with hashes (`uv pip compile --universal --generate-hashes`), or none",
)
WHEEL_ARCHITECTURE = SUBJECT.error(
    "wheel-architecture",
    inputs=("path", "architecture"),
    what="{origin}: '{file}' of {distribution} is for {machine}, and the function runs on {architecture}",
    why="Lambda cannot load it, although the wheel's name says otherwise",
    fix="Pin another version, or build the wheel for this architecture",
)
INDEX_UNREACHABLE = SUBJECT.error(
    "index-unreachable",
    inputs=("path",),
    what="{where}: {url} cannot be read ({error})",
    why="the wheels come from this package index",
    fix="Check pip's configuration, or uv's where pip has none, and the network",
)
WHEEL_MISSING = SUBJECT.error(
    "wheel-missing",
    inputs=("path", "runtime", "architecture"),
    what="{where}: {requirement} cannot be installed for {target}",
    why="{reason}",
    fix="Pin {pin}, name the index that has it (--extra-index-url), put it into a layer, or use Processor.from_image",
)
REQUIREMENTS_CONFLICT = SUBJECT.error(
    "requirements-conflict",
    inputs=("path", "runtime", "architecture"),
    what="{origin} cannot be installed for {target}",
    why="{reason}",
    fix="Pin versions that go together and have a wheel, correct their hashes, or use a layer or Processor.from_image",
)
PIP_SETTINGS = SUBJECT.error(
    "pip-settings",
    inputs=("path",),
    what="pip's configuration '{path}' cannot be read",
    why="{error}",
    fix="Correct the file",
)
UV_MISSING = SUBJECT.error(
    "uv-missing",
    inputs=("path",),
    what="{origin} cannot be installed",
    why="{python} has no uv",
    fix="Run `pip install uv`",
)
