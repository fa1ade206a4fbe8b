"""Gives uv the settings of pip, which it does not read: package indexes, credentials, certificates, constraints.

Places and precedence are those of pip: https://pip.pypa.io/en/stable/topics/configuration/.
"""

import math
import os
import platform
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from configparser import Error, RawConfigParser
from pathlib import Path

from cdk_intake_ledger.bundling.requirements import WheelError
from cdk_intake_ledger.validation.requirement_rules import PIP_SETTINGS

_ALIASES = {"default-timeout": "timeout", "pypi-url": "index-url"}

# Options and variables of uv by pip's names.
_LISTS = {"constraint": "--constraints", "find-links": "--find-links", "trusted-host": "--allow-insecure-host"}
_FLAGS = {"no-index": "--no-index", "pre": "--prerelease=allow", "require-hashes": "--require-hashes"}
_VARIABLES = {"retries": "UV_HTTP_RETRIES", "uploaded-prior-to": "UV_EXCLUDE_NEWER"}
_PROXY_VARIABLES = ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY")

# Variables of uv for the network and its cache. Others would change what is installed.
_UV_NETWORK = re.compile(
    "UV_(CACHE_DIR|NO_CACHE|CONCURRENT|HTTP|INSECURE_HOST|KEYRING|NATIVE_TLS|OFFLINE|SYSTEM_CERTS)"
)
_UV_INDEXES = re.compile("UV_(CONFIG_FILE|DEFAULT_INDEX|EXTRA_INDEX_URL|FIND_LINKS|INDEX|NO_CONFIG|NO_INDEX)")


def uv_settings(options: Iterable[tuple[str, str]]) -> tuple[tuple[str, ...], dict[str, str]]:
    """Translate the settings of `pip install`. If neither they nor the options name an index, uv's own settings do.

    Args:
        options: names, without the dashes, and values of a requirements file's options.

    Returns:
        arguments and the environment for uv. Addresses of indexes, which can have passwords, are in the environment.

    Raises:
        WheelError: a file of pip's settings cannot be read.

    """
    settings = pip_settings()
    lists = {name: settings.pop(name, "").split() for name in ("extra-index-url", *_LISTS)}
    lists |= {name: list(map(_absolute, lists[name])) for name in lists.keys() - {"trusted-host"}}
    lists["find-links"] = [link for link in lists["find-links"] if "://" in link or Path(link).exists()]  # as in pip
    for name, value in options:
        text = re.sub(r"\$\{([A-Z0-9_]+)\}", lambda variable: os.environ.get(variable[1], variable[0]), value)
        if name == "index-url":
            lists["extra-index-url"] = []  # as in pip, it replaces all others
        if name in lists:
            lists[name].append(text)
        elif name != "require-hashes":  # the file has them then
            settings[name] = text or "1"
    indexes = lists.pop("extra-index-url")
    flags = [flag for name, flag in _FLAGS.items() if settings.get(name, "").lower() in ("1", "on", "true", "y", "yes")]
    uses_pip = bool(indexes or lists["find-links"] or "--no-index" in flags or "index-url" in settings)
    arguments = [*flags, *(["--no-config"] if uses_pip else [])]
    arguments += [part for name, values in lists.items() for value in values for part in (_LISTS[name], value)]
    environment = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("UV_") or _UV_NETWORK.match(name) or (not uses_pip and _UV_INDEXES.match(name))
    }
    if "index-url" in settings:
        environment["UV_DEFAULT_INDEX"] = _absolute(settings["index-url"])
    if indexes:
        environment["UV_INDEX"] = " ".join(indexes)
    return tuple(arguments), environment | _network(settings)


def pip_settings() -> dict[str, str]:
    """The settings of `pip install`, by the long names of its options, from its files and variables.

    Raises:
        WheelError: a file cannot be read.

    """
    sections: dict[str, dict[str, str]] = {"global": {}, "install": {}}
    for path in _files():
        parser = RawConfigParser()
        try:
            parser.read(path, encoding="utf-8")
        except (Error, UnicodeDecodeError) as error:
            raise WheelError([PIP_SETTINGS.problem(path=path, error=" ".join(str(error).split()))]) from error
        for section in sections.keys() & set(parser.sections()):
            sections[section] |= {_name(key): value for key, value in parser.items(section)}
    variables = {_name(key[4:]): value for key, value in os.environ.items() if key.startswith("PIP_")}
    variables.pop("config-file", None)
    levels = (*sections.values(), variables)
    return {name: value.strip() for level in levels for name, value in level.items() if value.strip()}


def _name(key: str) -> str:
    name = key.lower().replace("_", "-").removeprefix("--")
    return _ALIASES.get(name, name)


def _files() -> Iterator[Path]:
    """Paths of pip's files. A later one overrides an earlier one."""
    chosen = os.environ.get("PIP_CONFIG_FILE", "")
    if chosen == os.devnull:
        return
    home, variables = Path("~").expanduser(), os.environ
    match platform.system():
        case "Windows":
            machine = [Path(variables.get("PROGRAMDATA") or "C:/ProgramData", "pip")]
            user = [home / "pip", Path(variables.get("APPDATA") or home / "AppData/Roaming", "pip")]
        case "Darwin":
            support = Path("Library/Application Support/pip")
            machine = ["/" / support]
            user = [home / ".pip", home / support if (home / support).is_dir() else home / ".config/pip"]
        case _:
            shared = (variables.get("XDG_CONFIG_DIRS") or "/etc/xdg").split(os.pathsep)
            machine = [*(Path(folder, "pip") for folder in shared), Path("/etc")]
            user = [home / ".pip", Path(variables.get("XDG_CONFIG_HOME") or home / ".config", "pip")]
    # As in pip, a chosen file replaces those of the user.
    folders = [*machine, *([] if chosen and Path(chosen).exists() else user), Path(sys.prefix)]
    yield from (folder / ("pip.ini" if os.name == "nt" else "pip.conf") for folder in folders)
    if chosen:
        yield Path(chosen)


def _network(settings: Mapping[str, str]) -> dict[str, str]:
    """Variables of uv for certificates, proxies and time limits."""
    # Without a certificate of its own, pip takes the operating system's.
    found = {"UV_SYSTEM_CERTS": os.environ.get("UV_SYSTEM_CERTS", "1")}
    found |= {variable: settings[name] for name, variable in _VARIABLES.items() if name in settings}
    bundles = (settings.get("cert"), os.environ.get("REQUESTS_CA_BUNDLE"), os.environ.get("CURL_CA_BUNDLE"))
    if bundle := next(filter(None, bundles), None):
        found["SSL_CERT_DIR" if Path(bundle).is_dir() else "SSL_CERT_FILE"] = _absolute(bundle)
    if "client-cert" in settings:
        found["SSL_CLIENT_CERT"] = _absolute(settings["client-cert"])
    if "proxy" in settings:
        found |= dict.fromkeys(_PROXY_VARIABLES, settings["proxy"])
    if timeout := settings.get("timeout"):  # uv takes whole seconds, and refuses everything else
        found["UV_HTTP_TIMEOUT"] = str(math.ceil(float(timeout))) if re.fullmatch(r"\d+\.\d+", timeout) else timeout
    if settings.get("keyring-provider") in ("import", "subprocess"):
        found["UV_KEYRING_PROVIDER"] = "subprocess"
    return found


def _absolute(place: str) -> str:
    """An address as it is, and an absolute path: uv runs in another folder."""
    return place if "://" in place else str(Path(place).expanduser().absolute())
