#!/usr/bin/env bash
# Makes .venv if needed, installs the project with its developer tools, and runs every check.
#
#   bash scripts/test.sh
set -euo pipefail
cd "$(dirname "$0")/.."

bash scripts/install.sh dev
exec bash scripts/check --all
