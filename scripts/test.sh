#!/usr/bin/env bash
# Makes .venv if needed, installs the project with its developer tools, and checks it: format, lint,
# types and all tests but the slow ones, which `scripts/check --slow` runs.
#
#   bash scripts/test.sh
set -euo pipefail
cd "$(dirname "$0")/.."

bash scripts/install.sh dev
exec bash scripts/check
