#!/usr/bin/env bash
# Make the Python environment ($1) and install the CDK CLI. Where something is missing, one line says what to install.
set -euo pipefail
venv=$1

die() { echo "setup: $*" >&2; exit 1; }

python=
for candidate in ${PYTHON:+"$PYTHON"} python3.13 python3 python3.14 python3.12 python; do
  if "$candidate" -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 12))' >/dev/null 2>&1; then
    python=$candidate
    break
  fi
done
[ -n "$python" ] || die "Python 3.12 or later (with venv) is needed, found $(python3 --version 2>&1 || echo none): install Python 3.13, for example with 'pyenv install 3.13' or 'uv python install 3.13'"

command -v node >/dev/null || die "Node.js 20 or later is needed, found none: install it from your package manager or nodejs.org"
node -e 'process.exit(+(parseInt(process.versions.node) < 20))' || die "Node.js 20 or later is needed, found $(node --version): install a newer one"
command -v npm >/dev/null || die "npm is needed beside Node.js: install it"

echo "setup: $("$python" --version), node $(node --version)"
"$python" -m venv --clear "$venv"
# The environment is exactly as in requirements.txt: no resolver, and only files that were on PyPI when it was written.
"$venv/bin/python" -m pip install --quiet --disable-pip-version-check --no-deps --require-hashes -r requirements.txt
"$venv/bin/python" -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
"$venv/bin/python" -m pip check >/dev/null || die "the Python environment is inconsistent: $("$venv/bin/python" -m pip check | head -n 3)"
npm ci --no-audit --no-fund --loglevel=error
