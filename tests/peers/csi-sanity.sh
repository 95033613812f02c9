#!/usr/bin/env bash
# Certifies berth-csi-dev with csi-sanity, the conformance suite of CSI's own community.
#
# Runs the suite once with everything on, for each kind of volume and access, and once more for each
# ability that can be switched off. One line per run; then every spec that was skipped, with the
# reason. Exits with 1 if a spec failed, or anything was left behind.
#
#   tests/peers/csi-sanity.sh             the whole matrix
#   tests/peers/csi-sanity.sh PATTERN     the runs whose name the (extended) pattern matches
#
# Owns:     .bin/csi-sanity-* in the repository, which git ignores.
# Promises: builds nothing but that; takes the driver from cargo's target directory.
# Never:    leaves a process, mount, loop device or file behind.
set -euo pipefail

readonly VERSION=v5.6.0
readonly MODULE=github.com/kubernetes-csi/csi-test/v5/cmd/csi-sanity
readonly AT_ONCE=2
readonly LONGEST_S=120 # per run; it takes a few seconds

ROOT="$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)"
readonly ROOT
readonly DRIVER="${CARGO_TARGET_DIR:-$ROOT/target}/debug/berth-csi-dev"
readonly SANITY="$ROOT/.bin/csi-sanity-$VERSION"
readonly PATTERN="${1:-.}"
# What must be found in no file of the driver.
readonly SECRET=hunter2-in-no-file

say() { printf 'csi-sanity: %s\n' "$*" >&2; }
fail() { say "$*"; exit 1; }

# name | flags of the driver | parameters of volumes, as YAML | MiB | mount or block | flags of the suite
#
# The suite makes volumes in nearly every spec, also in those about other services. So a plugin
# without CreateVolume, and one without a controller, is held to the specs that make none.
matrix() {
    local full='--topology zone=a --max-volumes 3' nothing='{}'
    local limit='--csi.testnodevolumeattachlimit'
    local no_id='no.(volume.id|target.path|staging.target.path).is.provided'
    local identity='GetPlugin|Probe|NodeGetCapabilities|NodeGetInfo'

    printf '%s|' directory "$full" "$nothing" 8 mount "$limit"; echo
    printf '%s|' image-ext4 "$full" '{backing: image}' 8 mount "$limit"; echo
    printf '%s|' image-xfs "$full" '{backing: image, fs-type: xfs}' 300 mount "$limit"; echo
    printf '%s|' image-block "$full" "$nothing" 8 block "$limit"; echo
    printf '%s|' split "$full" "$nothing" 8 mount "$limit"; echo
    printf '%s|' split-image "$full" '{backing: image}' 8 mount ''; echo
    printf '%s|' bound "$full --bound" "$nothing" 8 mount "$limit"; echo
    printf '%s|' pool "$full --pool-bytes 4294967296" "$nothing" 8 mount ''; echo
    for ability in clone snapshot list-snapshots get-snapshot group-snapshot list published-nodes \
        get-volume capacity attach publish-readonly expand online-expand expand-node modify stats \
        condition single-node-multi-writer topology stage mount-group stage,attach; do
        printf '%s|' "without-$ability" "$full --without $ability" "$nothing" 8 mount ''; echo
    done
    # A mounted ext4 grows only for a process with CAP_SYS_RESOURCE, which containers lack; xfs grows.
    printf '%s|' xfs-without-expand "$full --without expand" '{fs-type: xfs}' 300 mount ''; echo
    printf '%s|' block-without-expand "$full --without expand" "$nothing" 8 block ''; echo
    for ability in attach expand-node stage stage,attach; do
        printf '%s|' "image-without-$ability" "$full --without $ability" '{backing: image}' 8 mount ''
        echo
        printf '%s|' "block-without-$ability" "$full --without $ability" "$nothing" 8 block ''
        echo
    done
    printf '%s|' without-create "$full --without create" "$nothing" 8 mount \
        "--ginkgo.focus=($identity|ControllerGetCapabilities|GetCapacity|$no_id)"; echo
    printf '%s|' without-controller "$full --without controller" "$nothing" 8 mount \
        "--ginkgo.focus=($identity|Node.Service.*$no_id)"; echo
}

install_suite() {
    [[ -x $SANITY ]] && return
    command -v go >/dev/null || fail 'no go: the suite is a Go program; install Go'
    say "installing $MODULE@$VERSION into .bin"
    GOBIN="$ROOT/.bin/new" GOFLAGS=-mod=mod go install "$MODULE@$VERSION"
    mv "$ROOT/.bin/new/csi-sanity" "$SANITY"
    rmdir "$ROOT/.bin/new"
}

# Starts an instance: directory, socket's name, flags. Its process is noted in $dir/pids.
start() {
    local dir=$1 name=$2
    shift 2
    "$DRIVER" serve --endpoint "unix://$dir/$name.sock" --node-id n1 --backend "$dir/backend" \
        --log "$dir/$name.calls" --driver-name dev.berth "$@" 2>"$dir/$name.log" &
    echo $! >>"$dir/pids"
    local tries=200
    until [[ -S $dir/$name.sock ]]; do
        ((tries-- > 0)) || { cat "$dir/$name.log" >&2; return 1; }
        sleep 0.05
    done
}

stop() {
    local pid
    [[ -e $1/pids ]] || return 0
    while read -r pid; do kill "$pid" 2>/dev/null || true; done <"$1/pids"
    while read -r pid; do wait "$pid" 2>/dev/null || true; done <"$1/pids"
    rm "$1/pids"
}

# What a run left behind, one line each.
leftovers() {
    local dir=$1
    awk -v dir="$dir/" 'index($5, dir) == 1 { print "mounted: " $5 }' /proc/self/mountinfo
    losetup --list --noheadings --output NAME,BACK-FILE | grep -F "$dir/" || true
    find "$dir/backend/volumes" "$dir/backend/snapshots" "$dir/backend/groups" -name meta.json \
        -printf 'not deleted: %p\n' 2>/dev/null || true
    grep -rlF "$SECRET" "$dir/backend" "$dir"/*.calls "$dir"/*.log | sed 's/^/a secret is in /' || true
}

# Undoes what a failed run may have left.
clean() {
    local dir=$1
    awk -v dir="$dir/" 'index($5, dir) == 1 { print $5 }' /proc/self/mountinfo | tac |
        xargs -r umount --lazy
    losetup --list --noheadings --raw --output NAME,BACK-FILE |
        awk -v dir="$dir/" 'index($2, dir) == 1 { print $1 }' | xargs -r losetup --detach
    rm -rf --one-file-system "$dir"
}

# One run: a line of the matrix, and its directory. Leaves a report and $dir/result.
run() {
    local name flags parameters mib access suite dir=$2
    # The last field has what is left of the line: an expression may have bars of its own.
    IFS='|' read -r name flags parameters mib access suite <<<"${1%|}"
    local size=$((mib << 20)) began=$SECONDS endpoints=("--csi.endpoint=unix://$dir/csi.sock")
    echo "$parameters" >"$dir/parameters.yaml"
    local rpc
    for rpc in CreateVolume DeleteVolume ControllerPublishVolume ControllerUnpublishVolume \
        ControllerValidateVolumeCapabilities NodeStageVolume NodePublishVolume CreateSnapshot \
        DeleteSnapshot ControllerExpandVolume ControllerModifyVolume ListSnapshots GetSnapshot; do
        printf '%sSecret: {key: %s}\n' "$rpc" "$SECRET"
    done >"$dir/secrets.yaml"
    echo '{iops: "500", tier: gold}' >"$dir/mutable.yaml"

    # shellcheck disable=SC2086 # flags are words
    case $name in
    split*)
        start "$dir" controller --serve controller $flags
        start "$dir" csi --serve node $flags
        endpoints+=("--csi.controllerendpoint=unix://$dir/controller.sock")
        ;;
    *) start "$dir" csi $flags ;;
    esac
    # shellcheck disable=SC2086
    timeout --kill-after=5 "$LONGEST_S" "$SANITY" "${endpoints[@]}" \
        --csi.mountdir="$dir/mount" --csi.stagingdir="$dir/staging" --csi.secrets="$dir/secrets.yaml" \
        --csi.testvolumesize="$size" --csi.testvolumeexpandsize=$((size + (8 << 20))) \
        --csi.testvolumeaccesstype="$access" --csi.testvolumeparameters="$dir/parameters.yaml" \
        --csi.testvolumemutableparameters="$dir/mutable.yaml" \
        --ginkgo.no-color --ginkgo.json-report="$dir/report.json" $suite >"$dir/suite.log" 2>&1 ||
        true
    stop "$dir"
    leftovers "$dir" >"$dir/leftovers"
    summary "$name" $((SECONDS - began)) "$dir"
}

# Prints the run's line, and what failed; writes "ok" or "failed" into $dir/result.
summary() {
    local name=$1 took=$2 dir=$3 passed=0 failed=1 skipped=0 result=failed
    if [[ -s $dir/report.json ]]; then
        read -r passed failed skipped < <(jq -r '
            [.[0].SpecReports[] | select(.LeafNodeType == "It" or .State == "failed") | .State]
            | [ (map(select(. == "passed")) | length),
                (map(select(. != "passed" and . != "skipped" and . != "pending")) | length),
                (map(select(. == "skipped" or . == "pending")) | length) ] | @tsv' "$dir/report.json")
    fi
    # A run that never came to a spec is no success.
    ((failed == 0 && passed > 0)) && [[ ! -s $dir/leftovers ]] && result=ok
    {
        printf '%-6s %-34s %3d passed %3d failed %3d skipped  %3d s\n' \
            "$result" "$name" "$passed" "$failed" "$skipped" "$took"
        if [[ -s $dir/report.json ]]; then
            jq -r '.[0].SpecReports[]
                | select(.State != "passed" and .State != "skipped" and .State != "pending")
                | "       \((.ContainerHierarchyTexts // []) + [.LeafNodeText] | join(" "))\n         \(.Failure.Message)"' \
                "$dir/report.json"
        elif ((failed)); then
            tail -n 20 "$dir/suite.log" "$dir"/*.log
        fi
        sed 's/^/       left behind: /' "$dir/leftovers"
    } >"$dir/line"
    cat "$dir/line"
    echo "$result" >"$dir/result"
}

# Every spec that was skipped, by reason: in how many runs, and in which if not in all. A spec that
# was not in focus has no reason of its own.
skips() {
    local dir name
    for dir in "$WORK"/*/; do
        name=$(basename "$dir")
        [[ -s $dir/report.json ]] || continue
        jq -r --arg run "$name" '.[0].SpecReports[]
            | select(.LeafNodeType == "It" and (.State == "skipped" or .State == "pending"))
            | [ (if .State == "pending" then "switched off by the suite itself"
                 elif (.Failure.Message // "") == "" then "not asked of a plugin that makes no volumes"
                 else .Failure.Message end),
                ((.ContainerHierarchyTexts // []) + [.LeafNodeText] | join(" ")), $run ] | @tsv' \
            "$dir/report.json"
    done | sort | awk -F '\t' -v runs="$1" '
        function flush_spec() { if (spec) printf "    %s: %s\n", spec, (n == runs ? "all runs" : names) }
        $1 != reason { flush_spec(); reason = $1; spec = ""; printf "  %s\n", reason }
        $2 != spec { flush_spec(); spec = $2; n = 0; names = "" }
        { n++; names = names (n > 1 ? ", " : "") $3 }
        END { flush_spec() }'
}

(($(id -u) == 0)) || fail 'only root can mount'
[[ -x $DRIVER ]] || fail "no $DRIVER: run cargo build -p berth-csi-dev"
for tool in jq losetup mkfs.ext4 mkfs.xfs timeout; do
    command -v "$tool" >/dev/null || fail "no $tool"
done
install_suite

WORK=$(mktemp -d /tmp/berth-sanity-XXXXXX)
readonly WORK
finish() {
    local dir
    jobs -p | xargs -r kill 2>/dev/null || true
    for dir in "$WORK"/*/; do stop "$dir"; clean "$dir"; done
    rm -rf --one-file-system "$WORK"
}
trap finish EXIT
trap 'exit 130' INT TERM

count=0
while IFS= read -r line; do
    name=${line%%|*}
    [[ $name =~ $PATTERN ]] || continue
    count=$((count + 1))
    mkdir "$WORK/$name"
    while (($(jobs -rp | wc -l) >= AT_ONCE)); do wait -n || true; done
    run "$line" "$WORK/$name" &
done < <(matrix)
((count > 0)) || fail "no run is called like $PATTERN"
while (($(jobs -rp | wc -l) > 0)); do wait -n || true; done

echo
echo "skipped in these $count runs, by reason:"
skips "$count"
good=$(cat "$WORK"/*/result | grep -c '^ok$' || true)
echo
printf '%d of %d runs passed in %d s\n' "$good" "$count" "$SECONDS"
((good == count))
