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
readonly WANTED=tests/peers/nats_py/requirements.txt
readonly PLACE=.bin/nats-py

fail() { printf 'nats-py: %s\n' "$*" >&2; exit 1; }

command -v python3 >/dev/null || fail 'there is no python3: run deploy/setup peers'
python3 -c 'import sys; sys.exit(sys.version_info < (3, 10))' \
    || fail "python3 is $(python3 -V 2>&1); 3.10 or newer is needed"

# Made beside its place and moved there whole, so that one that was interrupted is not taken.
if ! cmp -s "$WANTED" "$PLACE/requirements.txt"; then
    mkdir -p .bin
    making=$(mktemp -d "$PWD/.bin/nats-py.XXXXXX")
    trap 'rm -rf "$making"' EXIT
    said=$(python3 -m venv "$making" 2>&1) \
        || fail "python3 -m venv does not work: run deploy/setup peers
$said"
    said=$("$making/bin/python" -m pip install --quiet --disable-pip-version-check \
        --require-hashes --only-binary :all: --target "$making/packages" -r "$WANTED" 2>&1) \
        || fail "nats-py cannot be fetched; without PyPI, set PIP_INDEX_URL to a mirror
$said"
    cp "$WANTED" "$making/"
    chmod 755 "$making"
    rm -rf "$PLACE"
    mv "$making" "$PLACE"
fi

export PYTHONPATH="$PWD/$PLACE/packages:$PWD/tests/peers" PYTHONDONTWRITEBYTECODE=1
exec python3 -m nats_py "$BIN"
