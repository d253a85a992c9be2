#!/usr/bin/env bash
# Creates .venv if needed, installs the project with its developer tools, and checks format, lint,
# types and all tests except the slow ones, which `scripts/check --slow` runs.
#
#   bash scripts/test.sh
set -euo pipefail
cd "$(dirname "$0")/.."

bash scripts/install.sh dev
exec bash scripts/check
