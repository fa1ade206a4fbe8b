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
from dataclasses import dataclass
from pathlib import Path

from cdk_intake_ledger.bundling.requirements import WheelError
from cdk_intake_ledger.validation.requirement_rules import PIP_SETTINGS

_ALIASES = {"default-timeout": "timeout", "pypi-url": "index-url"}
_INDEX_SETTINGS = ("index-url", "extra-index-url", "find-links", "no-index")

# Variables of uv for the network and its cache. Others would change what is installed.
_UV_NETWORK = re.compile(
    "UV_(CACHE_DIR|NO_CACHE|CONCURRENT|HTTP|INSECURE_HOST|KEYRING|NATIVE_TLS|OFFLINE|SYSTEM_CERTS)"
)
_UV_INDEXES = re.compile("UV_(CONFIG_FILE|DEFAULT_INDEX|EXTRA_INDEX_URL|FIND_LINKS|INDEX|NO_CONFIG|NO_INDEX)")


@dataclass(frozen=True)
class UvSettings:
    """Arguments and environment for uv. Addresses of indexes, which may have passwords, are in the environment."""

    arguments: tuple[str, ...]
    environment: Mapping[str, str]


def uv_settings(options: Iterable[tuple[str, str]]) -> UvSettings:
    """Translate the settings of `pip install`. If neither they nor the options name an index, uv's own settings do.

    Args:
        options: names, without the dashes, and values of a requirements file's options.

    Returns:
        the settings.

    Raises:
        WheelError: a file of pip's settings cannot be read.

    """
    single = pip_settings()
    extra, links, hosts = (_words(single, name) for name in ("extra-index-url", "find-links", "trusted-host"))
    # pip ignores folders that do not exist.
    links = [link for link in map(_absolute, links) if "://" in link or Path(link).exists()]
    for name, value in options:
        text = re.sub(r"\$\{([A-Z0-9_]+)\}", lambda variable: os.environ.get(variable[1], variable[0]), value)
        match name:
            case "extra-index-url":
                extra.append(text)
            case "find-links":
                links.append(text)
            case "trusted-host":
                hosts.append(text)
            case "index-url":  # replaces all others, as in pip
                single[name], extra = text, []
            case _:
                single[name] = "1"
    arguments = [part for link in links for part in ("--find-links", link)]
    arguments += [part for host in hosts for part in ("--allow-insecure-host", host)]
    arguments += [part for file in _words(single, "constraint") for part in ("--constraints", _absolute(file))]
    uses_pip = bool(links or extra or any(single.get(name) for name in _INDEX_SETTINGS))
    arguments += ["--no-config"] if uses_pip else []
    arguments += ["--no-index"] if _is_true(single, "no-index") else []
    arguments += ["--prerelease", "allow"] if _is_true(single, "pre") else []
    if cutoff := single.get("uploaded-prior-to"):
        arguments += ["--exclude-newer", cutoff]
    if single.get("keyring-provider") in ("import", "subprocess"):
        arguments += ["--keyring-provider", "subprocess"]
    environment = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("UV_") or _UV_NETWORK.match(name) or (not uses_pip and _UV_INDEXES.match(name))
    }
    if index := single.get("index-url"):
        environment["UV_DEFAULT_INDEX"] = _absolute(index)
    if extra:
        environment["UV_INDEX"] = " ".join(map(_absolute, extra))
    return UvSettings(tuple(arguments), environment | _network(single))


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
    bundles = (settings.get("cert"), os.environ.get("REQUESTS_CA_BUNDLE"), os.environ.get("CURL_CA_BUNDLE"))
    if bundle := next(filter(None, bundles), None):
        path = _absolute(bundle)
        found["SSL_CERT_DIR" if Path(path).is_dir() else "SSL_CERT_FILE"] = path
    if own := settings.get("client-cert"):
        found["SSL_CLIENT_CERT"] = _absolute(own)
    if proxy := settings.get("proxy"):
        found |= dict.fromkeys(("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"), proxy)
    if timeout := settings.get("timeout"):
        found["UV_HTTP_TIMEOUT"] = str(math.ceil(float(timeout)))
    if retries := settings.get("retries"):
        found["UV_HTTP_RETRIES"] = retries
    return found


def _words(settings: Mapping[str, str], name: str) -> list[str]:
    return settings.get(name, "").split()


def _is_true(settings: Mapping[str, str], name: str) -> bool:
    return settings.get(name, "").lower() in ("1", "on", "t", "true", "y", "yes")


def _absolute(place: str) -> str:
    """An address as it is, and an absolute path: uv runs in another folder."""
    return place if "://" in place else str(Path(place).expanduser().absolute())
