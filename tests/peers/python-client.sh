#!/usr/bin/env bash
# The Python client for authors of schedulers: its wheel, built and installed, on a running system.
#
# Owns:     a Python environment in .bin, made once. The wheel and the system are this run's own.
# Promises: exit code 0 only if the types are right and everything was as the README says, and
#           nothing is left behind.
#
# Called by tests/lanes.mk, when the programs are built. It names the server in BERTH_NATS_SERVER.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

readonly BIN=${BERTH_BIN:-$PWD/target/debug}
readonly CLIENT=$PWD/shared/client/python
readonly WANTED=tests/peers/python_client/requirements.txt
# nkeys is published as source alone: it is built with the setuptools of the others.
readonly SOURCE=tests/peers/python_client/requirements-source.txt
readonly PLACE=.bin/python-client
readonly PIP=(-m pip --quiet --disable-pip-version-check)

fail() { printf 'python-client: %s\n' "$*" >&2; exit 1; }

command -v python3 >/dev/null || fail 'there is no python3: run deploy/setup peers'
python3 -c 'import sys; sys.exit(sys.version_info < (3, 10))' \
    || fail "python3 is $(python3 -V 2>&1); 3.10 or newer is needed"

making='' run=''
trap 'rm -rf ${making:+"$making"} ${run:+"$run"}' EXIT

# Made beside its place and moved there whole, so that one that was interrupted is not taken.
if ! cmp -s <(cat "$WANTED" "$SOURCE") "$PLACE/requirements.txt"; then
    mkdir -p .bin
    making=$(mktemp -d "$PWD/.bin/python-client.XXXXXX")
    said=$(python3 -m venv "$making" 2>&1) \
        || fail "python3 -m venv does not work: run deploy/setup peers
$said"
    said=$("$making/bin/python" "${PIP[@]}" install \
        --require-hashes --only-binary :all: -r "$WANTED" 2>&1 \
        && "$making/bin/python" "${PIP[@]}" install \
        --require-hashes --no-build-isolation --no-deps -r "$SOURCE" 2>&1) \
        || fail "the packages cannot be fetched; without PyPI, set PIP_INDEX_URL to a mirror
$said"
    cat "$WANTED" "$SOURCE" >"$making/requirements.txt"
    chmod 755 "$making"
    rm -rf "$PLACE"
    mv "$making" "$PLACE"
fi
readonly PYTHON=$PWD/$PLACE/bin/python

export PYTHONDONTWRITEBYTECODE=1
run=$(mktemp -d)
"$PYTHON" "${PIP[@]}" wheel --no-deps --no-index --no-build-isolation -w "$run" "$CLIENT" \
    || fail 'the wheel is not built'
"$PYTHON" "${PIP[@]}" install --no-deps --no-index --target "$run/installed" "$run"/*.whl \
    || fail 'the wheel is not installed'
[[ -e $run/installed/berth_client/py.typed ]] || fail 'the wheel has no py.typed'

export PYTHONPATH="$run/installed:$PWD/tests/peers"
(cd "$run" && MYPYPATH="$run/installed" "$PYTHON" -m mypy --strict --cache-dir "$run/types" \
    --no-error-summary -p berth_client) || fail 'the types are wrong'
(cd "$run" && "$PYTHON" -m mypy --strict --cache-dir "$run/types" --no-error-summary \
    "$CLIENT/examples/scheduler.py") || fail 'the types of the example are wrong'

"$PYTHON" -m python_client "$BIN" "$CLIENT/examples/scheduler.py"
