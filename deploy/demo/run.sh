#!/usr/bin/env bash
# The main job, narrated: the whole system on this machine, one volume's life, and every process
# killed once in the middle of its work.
#
# Owns:     a directory in /tmp and the processes it starts. With KEEP=1 they stay until Ctrl-C.
# Promises: what it says has been checked; anything that is not as told ends it with an error. It
#           leaves no process, no mount and no file behind.
# Never:    asks a question. Not being root, it takes itself into namespaces of its own first.
#
# Called by `make demo`, which builds the programs and names the server in BERTH_NATS_SERVER.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

if ! unshare --mount true 2>/dev/null; then
    [[ -z ${BERTH_DEMO_ENTERED:-} ]] || { echo 'demo: may not mount, even in a namespace' >&2; exit 1; }
    enter=(unshare --user --map-root-user --mount --propagation shared --)
    if ! refusal=$("${enter[@]}" true 2>&1); then
        cat >&2 <<REMEDIES
demo: mounting needs root or a user namespace, which was refused: $refusal
  run it as root, or allow user namespaces:
    sysctl -w kernel.unprivileged_userns_clone=1
    sysctl -w kernel.apparmor_restrict_unprivileged_userns=0   (Ubuntu 24.04 and later)
  in a container: give it CAP_SYS_ADMIN (docker run --privileged)
REMEDIES
        exit 1
    fi
    BERTH_DEMO_ENTERED=1 exec "${enter[@]}" "$0" "$@"
fi

readonly BIN=${BERTH_BIN:-$PWD/target/debug}
readonly DIR=$(mktemp -d /tmp/berth-demo.XXXXXX)
readonly SAID=$DIR/said # what the last command wrote to stderr
export PATH="$BIN:$PATH"
unset BERTH_NAMESPACE BERTH_NODE

step() { printf '\n%s %s\n' "$(printf '%3ds' "$SECONDS")" "$*"; }
tell() { printf '     %s\n' "$*"; }
quote() { sed -E "s|$DIR|DIR|g; s/^/     \| /"; }
fail() {
    printf '\ndemo: NOT AS TOLD: %s\n' "$*" >&2
    [[ ! -s $SAID ]] || { echo '  the last command said:' >&2; tail -n 15 "$SAID" | quote >&2; }
    printf '  the logs are in %s\n' "$DIR/log" >&2
    KEEP_FILES=1
    exit 1
}

# What runs beside this script ends with it, however it ends.
in_background() { exec setpriv --pdeathsig TERM -- "$@"; }

clean_up() {
    local code=$? left
    trap - EXIT INT TERM
    # The background runs first: they release what they hold while the system still works.
    for pid in ${RUN:-} ${DEV:-}; do kill -TERM "$pid" 2>/dev/null || true; done
    for pid in ${RUN:-} ${DEV:-}; do wait "$pid" 2>/dev/null || true; done
    while read -r left; do umount "$left" 2>/dev/null || true; done \
        < <(awk -v dir="$DIR/" 'index($5, dir) == 1 { print $5 }' /proc/self/mountinfo | tac)
    left=$(awk -v dir="$DIR/" 'index($5, dir) == 1' /proc/self/mountinfo)
    if [[ -n $left ]]; then
        printf 'demo: still mounted, so %s stays:\n%s\n' "$DIR" "$left" >&2
        exit 1
    fi
    [[ -n ${KEEP_FILES:-} ]] || rm -rf "$DIR"
    exit "$code"
}
trap clean_up EXIT
trap 'exit 130' INT TERM

# Nothing said yet. A command in the background opens the file in its own time: until then, it would
# hold what an earlier command said.
forget() { : >"$SAID"; }

# Waits until the command succeeds.
until_true() {
    local what=$1 deadline=$((SECONDS + 30))
    shift
    until "$@"; do
        ((SECONDS < deadline)) || fail "not within 30 seconds: $what"
        sleep 0.02
    done
}

# How often the drivers have begun this call.
begun() { cat "$DIR"/calls/*.jsonl | grep -c "\"entry\":\"begin\".*\"rpc\":\"$1\"" || true; }
has_begun_again() { (($(begun "$1") > $2)); }

# Has every driver stand still for a moment at its next call of this kind.
slow_down() {
    printf '[{"rpc":"%s","delay_ms":400,"times":1}]' "$1" >"$DIR/faults.tmp"
    mv "$DIR/faults.tmp" "$DIR/faults.json"
}

# Kills a process of the system with SIGKILL in the middle of a call.
kill_during() {
    local name=$1 rpc=$2 before=$3 pid
    until_true "$rpc begins" has_begun_again "$rpc" "$before"
    pid=$(<"$DIR/pids/$name.pid")
    kill -KILL "$pid" || fail "$name was not there to be killed"
    until_true "$name runs again" runs_again "$name" "$pid"
    KILLED+=("$name")
}
runs_again() { [[ -s $DIR/pids/$1.pid && $(<"$DIR/pids/$1.pid") != "$2" ]]; }

volume_is_free() { berth volume status data --json | grep -q '"claims": \[\]'; }

# A workload on a node during whose claim one process is killed, and another during its release.
survive() {
    local node=$1 victim=$2 call=$3 later_victim=$4 later_call=$5 before line began=$SECONDS
    line="$node without $victim, then without $later_victim"
    before=$(begun "$call")
    slow_down "$call"
    # It goes on once it is told to, so that the release begins when the next call stands still.
    rm -f "$DIR/go"
    forget
    in_background berth run --node "$node" --volume data -- sh -c \
        "echo '$line' >> \"\$BERTH_VOLUME_DATA/log\"; until [ -e '$DIR/go' ]; do sleep 0.02; done" \
        2>"$SAID" &
    RUN=$!
    kill_during "$victim" "$call" "$before"
    until_true "the workload runs on $node" grep -q '^  mounted' "$SAID"
    before=$(begun "$later_call")
    slow_down "$later_call"
    touch "$DIR/go"
    kill_during "$later_victim" "$later_call" "$before"
    wait "$RUN" || fail "the workload on $node ended with exit code $?"
    RUN=
    until_true 'the volume is free again' volume_is_free
    tell "$(printf '%-22s during %-23s and %-15s during %-25s %ds' \
        "$victim" "$call" "$later_victim" "$later_call" "$((SECONDS - began))")"
    LINES_WRITTEN+=("$line")
}

KILLED=() LINES_WRITTEN=()

step "The whole system, each part a process: berth dev --nodes 2 --dir $DIR"
in_background berth dev --nodes 2 --dir "$DIR" --volume-timeout 1500ms \
    --ready-file "$DIR/ready" >"$DIR/dev.out" 2>&1 &
DEV=$!
is_ready() {
    kill -0 "$DEV" 2>/dev/null || { cp "$DIR/dev.out" "$SAID"; fail 'berth dev ended'; }
    [[ -e $DIR/ready ]]
}
until_true 'berth dev is healthy' is_ready
# shellcheck source=/dev/null
source "$DIR/env"
for pid in "$DIR"/pids/*.pid; do basename "$pid" .pid; done | paste -sd' ' | quote
berth plugin status | quote

step 'A volume: made in the storage, then registered with its plugin and its access mode'
berth-csi-dev provision --backend "$DIR/backend" --volume data 2>"$SAID" || fail 'provision'
berth volume init "$DIR/data.toml" 2>"$SAID" || fail 'volume init'
berth volume register "$DIR/data.toml" 2>"$SAID" | quote || fail 'volume register'

step "A workload on n1 writes a file; its volume is released when it ends, step by step:"
# shellcheck disable=SC2016
berth run --node n1 --volume data -- sh -c 'echo "written on n1" > "$BERTH_VOLUME_DATA/hello"' \
    2>"$SAID" || fail "the workload on n1 ended with exit code $?"
quote <"$SAID"
grep -q 'data: free' "$SAID" || fail 'the release was not told to its end'

step 'A workload on n2 gets the same volume and reads the file:'
# shellcheck disable=SC2016
read_back=$(berth run --node n2 --volume data -- sh -c 'cat "$BERTH_VOLUME_DATA/hello"' 2>"$SAID") \
    || fail "the workload on n2 ended with exit code $?"
[[ $read_back == 'written on n1' ]] || fail "n2 read: $read_back"
quote <<<"$read_back"

step 'While a workload called "holder" has it on n1, a third asks to write to it on n2:'
forget
in_background berth run --node n1 --alloc holder --volume data -- sleep 60 2>"$SAID" &
RUN=$!
until_true 'the holder has the volume' grep -q '^  mounted' "$SAID"
code=0
# shellcheck disable=SC2016
berth run --node n2 --volume data -- sh -c 'echo third > "$BERTH_VOLUME_DATA/hello"' \
    2>"$DIR/third" || code=$?
quote <"$DIR/third"
[[ $code == 124 ]] || fail "the third was not refused as held: exit code $code"
grep -q 'alloc holder on node n1' "$DIR/third" || fail 'the refusal does not name the holder'
kill -TERM "$RUN"
code=0
wait "$RUN" || code=$?
RUN=
[[ $code == 143 ]] || fail "the holder ended with exit code $code, not by the signal handed on"

step 'Each process is killed with SIGKILL in the middle of a call, and the work is completed:'
survive n1 nats-server ControllerPublishVolume volumewatcher ControllerUnpublishVolume
survive n2 claim ControllerPublishVolume agent-n2 NodeUnpublishVolume
survive n1 agent-n1 NodeStageVolume gc NodeUnpublishVolume
survive n2 driver-n2 NodePublishVolume plugin-registry NodeUnpublishVolume
survive n1 nats-server NodeStageVolume driver-n1 NodeUnstageVolume
for pid in "$DIR"/pids/*.pid; do
    name=$(basename "$pid" .pid)
    [[ " ${KILLED[*]} " == *" $name "* ]] || fail "$name was never killed"
done

step 'What is in the volume now, read on n2:'
# shellcheck disable=SC2016
berth run --node n2 --volume data:ro -- sh -c 'cat "$BERTH_VOLUME_DATA/hello" "$BERTH_VOLUME_DATA/log"' \
    >"$DIR/read" 2>"$SAID" || fail "the last workload ended with exit code $?"
quote <"$DIR/read"
printf '%s\n' 'written on n1' "${LINES_WRITTEN[@]}" | cmp -s - "$DIR/read" \
    || fail 'the volume does not hold what was written to it, in order'

step "The storage driver's own log of every call it was asked for, judged by CSI's rules of order:"
berth-csi-dev judge "$DIR"/calls/*.jsonl >"$SAID" 2>&1 || fail 'a rule was broken'
quote <"$SAID"
[[ -z $(awk -v dir="$DIR/" 'index($5, dir) == 1' /proc/self/mountinfo) ]] || fail 'a mount is left'

step "All as told. Look for yourself: make demo KEEP=1, or $BIN/berth dev"
if [[ -n ${KEEP:-} ]]; then
    [[ -z ${BERTH_DEMO_ENTERED:-} ]] \
        || tell "in another shell: nsenter --target $$ --user --mount --preserve-credentials"
    tell "in another shell: source $DIR/env"
fi
cat <<'HINTS'
     nats kv ls; nats kv ls berth-volumes -v --display-value; nats kv get berth-volumes default.data.spec
     nats kv watch berth-volumes                  every transition of a claim, state first
     nats micro ls; nats micro info berth-claim; nats micro stats berth-node-agent
     nats sub 'berth.v1.event.>'                  what happens, in words
     berth volume status data; berth claim status; berth node status
HINTS
if [[ -n ${KEEP:-} ]]; then
    step 'The system keeps running. Ctrl-C ends it and removes everything.'
    wait "$DEV"
fi
