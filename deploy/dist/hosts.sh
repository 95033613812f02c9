# Bare Debian hosts for the tests of the packages. Sourced, not run.
#
# Owns:     a directory in /tmp, and a network, mount and process namespace in which the hosts run: each
#           has a bare Debian root (kept in the cache, and never changed), a systemd of its own, and
#           an address on a bridge. They reach each other and nothing else.
# Promises: units run as on a host. However the script ends, no process, no mount and no file is left
#           but the cached root.
# Never:    touches packages, users, units or the network of this machine.

readonly CACHE=${BERTH_CACHE:-${XDG_CACHE_HOME:-${HOME:-/root}/.cache}/berth}
readonly SUITE=${BERTH_SUITE:-bookworm} # the oldest that the packages are for
readonly BARE=$CACHE/$SUITE-systemd

# A bare Debian, made once. A killed debootstrap leaves nothing under the final name.
make_bare_root() {
    [[ ! -d $BARE ]] || return 0
    printf 'debootstrap %s, kept in %s\n' "$SUITE" "$BARE"
    mkdir -p "$CACHE"
    rm -rf --one-file-system "$BARE.new"
    debootstrap --variant=minbase --include=systemd,systemd-sysv "$SUITE" "$BARE.new" \
        >"$CACHE/debootstrap.log" 2>&1 || { tail "$CACHE/debootstrap.log" >&2; return 1; }
    rm -rf "$BARE.new"/var/cache/apt/archives/*.deb "$BARE.new"/var/lib/apt/lists/*
    mv -T "$BARE.new" "$BARE"
}

# Enters the namespaces: everything in them ends with the script, also where it is killed.
if [[ -z ${BERTH_DIST_DIR:-} ]]; then
    make_bare_root
    BERTH_DIST_DIR=$(mktemp -d /tmp/berth-dist.XXXXXX)
    export BERTH_DIST_DIR
    # The kernel keeps the control groups of the hosts.
    trap 'rm -rf --one-file-system "$BERTH_DIST_DIR"; rmdir /run/systemd/nspawn/propagate/"${BERTH_DIST_DIR##*/}"* 2>/dev/null || true
        find /sys/fs/cgroup -depth -type d -path "*/${BERTH_DIST_DIR##*/}*" -exec rmdir {} + 2>/dev/null || true' EXIT
    unshare --net --mount --pid --fork --kill-child --mount-proc -- "$0" "$@"
    exit
fi

readonly DIR=$BERTH_DIST_DIR
declare -A NSPAWN=() LEADER=() # of each host: the process that runs it, and its systemd

step() { printf '\n%s %s\n' "$(printf '%3ds' "$SECONDS")" "$*"; }
tell() { printf '     %s\n' "$*"; }
# What was expected is said last: the end of a log is what is read first.
fail() {
    local host unit
    for host in "${!LEADER[@]}"; do
        printf -- '-- host %s\n' "$host" >&2
        on "$host" systemctl --no-pager --failed >&2 || true
        for unit in nats-server berth-claim berth-plugin-registry berth-volumewatcher berth-gc berth-node-agent; do
            on "$host" journalctl --no-pager --quiet -n 6 -u "$unit" >&2 || true
        done
    done
    [[ ! -s $DIR/said ]] || { printf -- '-- the last command said\n' && tail -n 20 "$DIR/said"; } >&2
    [[ ! -s $DIR/tried ]] || { printf -- '-- the last try said\n' && tail -n 20 "$DIR/tried"; } >&2
    printf '\n%s: NOT AS TOLD: %s\n' "${0##*/}" "$*" >&2
    exit 1
}

# on HOST COMMAND...: runs a command on a host, as its root, without input.
on() {
    nsenter --target "${LEADER[$1]}" --all --root --wd -- /usr/bin/env -i -C /root HOME=/root LC_ALL=C.UTF-8 \
        PATH=/usr/sbin:/usr/bin:/sbin:/bin DEBIAN_FRONTEND=noninteractive "${@:2}" </dev/null
}

# Waits until the command succeeds.
until_true() {
    local what=$1 within=${PATIENCE:-60}
    local deadline=$((SECONDS + within))
    shift
    until "$@" >"$DIR/tried" 2>&1; do
        ((SECONDS < deadline)) || fail "not within $within seconds: $what"
        sleep 0.1
    done
}

root_of() { printf '%s/%s/root\n' "$DIR" "$1"; }

# start_host NAME ADDRESS [PACKAGES]: with the packages of a directory, which is dist/ by default.
start_host() {
    local name=$1 dir=$DIR/$1 packages=${3:-dist} root
    root=$(root_of "$name")
    mkdir -p "$root" "$dir/changes"
    mount -t tmpfs -o size=2g berth-dist "$dir/changes"
    mkdir "$dir/changes"/{upper,work}
    mount -t overlay -o "lowerdir=$BARE,upperdir=$dir/changes/upper,workdir=$dir/changes/work" \
        berth-dist "$root"
    printf '%s\n' "$name" >"$root/etc/hostname"
    mkdir "$root/root/dist"
    cp "$packages"/*.deb "$packages/SHA256SUMS" "$root/root/dist"
    (
        enter_cgroup "${DIR##*/}-$name"
        exec systemd-nspawn --quiet --directory="$root" --machine="${DIR##*/}-$name" --hostname="$name" --boot \
            --register=no --keep-unit --network-bridge=berth-dist --resolv-conf=off --timezone=off \
            --link-journal=no --console=read-only
    ) </dev/null >"$dir/console" 2>&1 &
    NSPAWN[$name]=$!
    until_true "$name starts" find_leader "$name"
    until_true "$name is up" is_up "$name"
    nsenter --target "${LEADER[$name]}" --net -- ip address add "$2/24" dev host0
    nsenter --target "${LEADER[$name]}" --net -- ip link set host0 up
}
# Moves this process into a new control group, in each tree that systemd uses. Hosts in one group would
# see each other's processes in the groups of their units, and their systemd could signal none.
enter_cgroup() {
    local tree
    for tree in /sys/fs/cgroup /sys/fs/cgroup/{unified,systemd}; do
        [[ -w $tree/cgroup.procs ]] || continue
        mkdir "$tree/$1"
        echo "$BASHPID" >"$tree/$1/cgroup.procs"
    done
}
find_leader() {
    local child
    for child in $(pgrep -P "${NSPAWN[$1]}"); do
        grep -qE '^NSpid:.*\s1$' "/proc/$child/status" && LEADER[$1]=$child && return
    done
    return 1
}
is_up() { [[ $(on "$1" systemctl is-system-running) =~ running|degraded ]]; }

# The directory of the last release's packages; that of dist/, where this checkout cannot build them.
last_release() {
    local dist
    dist=target/last-release/$(<tests/integration/last-release/commit)/dist
    [[ -d $dist ]] || { tell "SKIPPED: no packages of the last release; try: make last-release-packages" >&2; dist=dist; }
    printf '%s\n' "$dist"
}

# version_of DIRECTORY: the Debian version of the packages there.
version_of() { dpkg-deb --field "$(echo "$1"/berth-services_*.deb)" Version; }

LOADS=() LOAD_LOGS=()

# start_load HOST NAME COMMAND...: repeats a command on a host until end_loads.
start_load() {
    local root
    root=$(root_of "$1")
    cat >"$root/root/load" <<'END'
#!/bin/sh
name=$1
shift
until [ -e /root/stop ]; do
    began=$(date +%s)
    if "$@" >"/root/$name.said" 2>&1; then
        echo ok
    else
        echo "failed: $?"
        cat "/root/$name.said"
        echo 'the one before said:'
        cat "/root/$name.before"
    fi
    cp "/root/$name.said" "/root/$name.before"
    echo $(($(date +%s) - began)) >>"/root/$name.seconds"
done >"/root/$name.load"
END
    on "$1" sh /root/load "${@:2}" &
    LOADS+=($!)
    LOAD_LOGS+=("$root/root/$2.load")
    until_true "$2 runs" has_done_more "$root/root/$2.load" 0
}
has_done_more() { (($(grep -c '^ok$' "$1") > $2)); }

# Claims of a loop ask with --wait, as berth@.service does: a release whose call was cut off by a
# restart goes on once that call's deadline has passed, also after its `berth run` has ended.
#
# Ends the loops. Each must have gone on to the end, and no command of theirs may have failed.
end_loads() {
    local log host
    for log in "${LOAD_LOGS[@]}"; do
        PATIENCE=200 until_true "$log goes on" has_done_more "$log" "$(grep -c '^ok$' "$log")"
    done
    for host in "${!LEADER[@]}"; do touch "$(root_of "$host")/root/stop"; done
    wait "${LOADS[@]}" || fail 'a loop broke off'
    for log in "${LOAD_LOGS[@]}"; do
        tell "$(basename "$log" .load): the longest took $(sort -n "${log%.load}.seconds" | tail -n 1) s"
        ! grep -v '^ok$' "$log" | head -n 20 | grep . >&2 || fail 'a request failed'
    done
    LOADS=() LOAD_LOGS=()
}

# As a power cut does.
kill_host() {
    kill -KILL "${LEADER[$1]}"
    wait "${NSPAWN[$1]}" 2>/dev/null || true
    unset "NSPAWN[$1]" "LEADER[$1]"
}

# The hosts are shut down in order, so that nothing of theirs is left in the kernel.
stop_hosts() {
    local code=$? host
    trap - EXIT INT TERM
    for host in "${!NSPAWN[@]}"; do
        touch "$(root_of "$host")"/root/{stop,end} # what runs in loops ends
        kill -TERM "${NSPAWN[$host]}" || true
    done
    for host in "${!NSPAWN[@]}"; do
        timeout 60 tail --pid="${NSPAWN[$host]}" -f /dev/null || kill -KILL "${NSPAWN[$host]}" || true
    done
    exit "$code"
}
trap stop_hosts EXIT
trap 'exit 130' INT TERM
ip link set lo up
ip link add berth-dist type bridge
ip link set berth-dist up
