#!/usr/bin/env bash
# Volumes at the storage of a driver in Go: created, grown, cut, copied and deleted while processes
# are killed and calls end badly, by berth-csi-proxy in front of the driver. Then the driver's own
# state is held against Berth's records, and the judge reads the calls.
#
#   tests/peers/hostpath.sh             the driver of tests/peers/hostpath/driver
#   tests/peers/hostpath.sh upstream    csi-driver-host-path itself, built from its module
#
# The module of csi-driver-host-path is not served everywhere. So the usual run takes a driver with
# its flags, its state file and its answers. HOSTPATHPLUGIN=/path names another binary.
#
# Owns:     .bin/hostpath-* in the repository, which git ignores. The system is the Python's own.
# Promises: exit code 0 only if the storage and the records agree, the judge finds nothing wrong, and
#           nothing is left behind.
#
# Called by tests/lanes.mk, when the programs are built. It names the server in BERTH_NATS_SERVER.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

readonly BIN=${BERTH_BIN:-$PWD/target/debug}
readonly DRIVER=$PWD/tests/peers/hostpath/driver
readonly UPSTREAM=github.com/kubernetes-csi/csi-driver-host-path
readonly VERSION=v1.17.0

fail() { printf 'hostpath: %s\n' "$*" >&2; exit 1; }
# As the tests in Rust do: a missing tool is a failure in CI.
skip() {
    [[ -z ${CI:-} ]] || fail "$*"
    printf 'hostpath: skipped: %s\n' "$*" >&2
    exit 0
}

# Builds the package ./$2 of the module in directory $1, with what follows as flags, to $plugin.
build() {
    local dir=$1 package=$2
    shift 2
    [[ -x $plugin ]] && return
    mkdir -p .bin
    go build -C "$dir" -mod=readonly "$@" -o "$plugin.new" "./$package"
    mv "$plugin.new" "$plugin"
}

(($(id -u) == 0)) || skip 'only root can mount'
if [[ -n ${HOSTPATHPLUGIN:-} ]]; then
    plugin=$(realpath "$HOSTPATHPLUGIN")
elif ! command -v go >/dev/null; then
    skip 'there is no go to build the driver with'
elif [[ ${1:-} == upstream ]]; then
    plugin=$PWD/.bin/hostpath-$VERSION
    dir=$(go mod download -json "$UPSTREAM@$VERSION" | jq -r '.Dir // empty')
    [[ -n $dir ]] || fail "the module proxy does not have $UPSTREAM@$VERSION"
    # `go install` refuses a module that replaces others. Without a version it never becomes ready.
    build "$dir" cmd/hostpathplugin -ldflags "-X main.version=$VERSION"
else
    readonly SUM=$(cat "$DRIVER"/* | sha256sum | cut -c1-16)
    plugin=$PWD/.bin/hostpath-$SUM
    build "$DRIVER" .
fi

PYTHONPATH=$(tests/peers/nats_py/packages)
export PYTHONPATH PYTHONDONTWRITEBYTECODE=1
exec python3 -m hostpath "$BIN" "$plugin"
