#!/usr/bin/env bash
# A second, independent client: nats-py against a running system, by docs/asyncapi.json and its schema alone.
#
# Owns:     a Python environment in .bin, made once. The system is the Python's own.
# Promises: exit code 0 only if everything was as documented, and nothing is left behind.
#
# Called by tests/lanes.mk, when the programs are built. It names the server in BERTH_NATS_SERVER.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

readonly BIN=${BERTH_BIN:-$PWD/target/debug}

PYTHONPATH=$(tests/peers/nats_py/packages)
export PYTHONPATH PYTHONDONTWRITEBYTECODE=1
exec python3 -m nats_py "$BIN"
