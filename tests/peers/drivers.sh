#!/usr/bin/env bash
# Berth with drivers that others wrote: each is built from its module, and has berth-csi-proxy in front.
#
#   tests/peers/drivers.sh [NAME...]     all drivers, or those that are named
#
# A driver is a directory below tests/peers/drivers, whose go.mod pins it, and a line of descriptions.py.
#
# Owns:     .bin/driver-* in the repository, which git ignores; a mount namespace, to which unmounts of
#           the host still come, so that it holds no release there. The systems are the Python's own.
# Promises: exit code 0 only if each driver's volumes lived and ended as they should (drivers/__main__.py),
#           and nothing is left behind.
#
# Called by tests/lanes.mk, when the programs are built. It names the server in BERTH_NATS_SERVER.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

fail() { printf 'drivers: %s\n' "$*" >&2; exit 1; }
# As the tests in Rust do: what is missing is a failure in CI.
skip() {
    [[ -z ${CI:-} ]] || fail "$*"
    printf 'drivers: skipped: %s\n' "$*" >&2
}

(($(id -u) == 0)) || { skip 'only root can mount'; exit 0; }
command -v go >/dev/null || { skip 'there is no go to build the drivers with'; exit 0; }

if [[ -z ${BERTH_DRIVERS_INSIDE:-} ]]; then
    # A driver gets another /tmp, so a repository below /tmp is used from a second place.
    place=$PWD
    [[ $PWD/ != /tmp/* ]] || place=/mnt
    export BERTH_DRIVERS_INSIDE=yes BERTH_NATS_SERVER=${BERTH_NATS_SERVER/#"$PWD"/"$place"}
    # shellcheck disable=SC2016 # the inner shell's variables
    exec unshare --mount --propagation slave bash -euc '
        # Copies of mounts of other tests would keep their volumes in use.
        awk "index(\$5, \"/tmp/berth-\") == 1 {print \$5}" /proc/self/mountinfo | sort -r |
            while read -r copy; do umount --lazy "$copy" || true; done
        [[ $1 == "$2" ]] || mount --rbind "$1" "$2"
        cd "$2"
        exec tests/peers/drivers.sh "${@:3}"' inside "$PWD" "$place" "$@"
fi

readonly BIN=${BERTH_BIN:-$PWD/target/debug}
readonly PLACE=tests/peers/drivers

# Builds driver $1 from the directory $2, which pins it, where it is not built yet; names the program.
build() {
    local sum program package=tool
    # One that is made here is its module's own package.
    [[ ! -e $2/main.go ]] || package=.
    sum=$(cat "$2"/* | sha256sum | cut -c1-16)
    program=$PWD/.bin/driver-$1-$sum
    if [[ ! -x $program ]]; then
        mkdir -p .bin
        go build -C "$2" -mod=readonly -o "$program.new" "$package" >&2 || return
        mv "$program.new" "$program"
    fi
    printf '%s\n' "$program"
}

names=("$@")
if ((${#names[@]} == 0)); then
    names=(hostpath)
    for file in "$PLACE"/*/go.mod; do names+=("$(basename "${file%/go.mod}")"); done
fi
programs=()
for name in "${names[@]}"; do
    dir=$PLACE/$name
    [[ $name != hostpath ]] || dir=tests/peers/hostpath/driver
    [[ -d $dir ]] || fail "there is no driver $name"
    if program=$(build "$name" "$dir"); then
        programs+=("$name=$program")
    else
        skip "driver $name: it cannot be built, or one of its modules cannot be had"
    fi
done

PYTHONPATH=$(tests/peers/nats_py/packages)
# Not in /tmp, which a driver gets for itself.
export PYTHONPATH PYTHONDONTWRITEBYTECODE=1 TMPDIR=/var/tmp
exec python3 -m drivers "$BIN" "${programs[@]}"
