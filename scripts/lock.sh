#!/usr/bin/env bash
# Resolve pyproject.toml afresh, and pin the result in requirements.txt. The other environments keep their versions. Each
# pin has the hashes of all its files on PyPI, for each Python and platform.
set -euo pipefail
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
python3 -m venv "$tmp/venv"
"$tmp/venv/bin/pip" install --quiet --disable-pip-version-check uv

# uv reads neither pip's configuration nor, with this option, its own: an index of this machine cannot add files.
compile() {
  "$tmp/venv/bin/uv" --quiet --no-config pip compile --python "$tmp/venv/bin/python" --python-version 3.12 --universal \
    --generate-hashes --no-header --no-annotate "$@"
}

{
  echo "# Everything that the checkout needs, pinned; 'make lock' writes this file from pyproject.toml."
  compile --extra dev pyproject.toml
} > "$tmp/requirements.txt"
mv "$tmp/requirements.txt" requirements.txt

for file in scripts/*-requirements.txt; do
  { grep '^#' "$file"; compile --no-deps "$file"; } > "$tmp/requirements.txt"
  mv "$tmp/requirements.txt" "$file"
done
