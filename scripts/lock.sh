#!/usr/bin/env bash
# Resolve pyproject.toml afresh and pin the result in requirements.txt.
set -euo pipefail
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
python3 -m venv "$tmp/venv"
"$tmp/venv/bin/pip" install --quiet --disable-pip-version-check hatchling editables ".[dev]"
{
  echo "# Everything that the checkout needs, pinned; 'make lock' writes this file from pyproject.toml."
  "$tmp/venv/bin/pip" freeze --exclude cdk-intake-ledger
} > requirements.txt
