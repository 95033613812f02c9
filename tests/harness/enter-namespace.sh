#!/bin/sh
# Runs a program in a mount namespace of its own, without the mounts of other tests.
#
#   enter-namespace.sh LOCK PROPAGATION OWN PROGRAM [ARGUMENT …]
#
# A new namespace starts with a copy of each mount, so it holds the volumes of every parallel test.
# Releases hold LOCK shared. This script holds it exclusively until it has unmounted the copies
# below the directories of other tests. Mounts below OWN stay.
lock=$1; propagation=$2; own=${3%/}; shift 3
exec 9>"$lock"; flock 9
exec unshare --mount --propagation "$propagation" sh -c '
    own=$1; shift
    awk -v own="$own/" "index(\$5, \"/tmp/berth-\") == 1 && index(\$5, own) != 1 { print \$5 }" \
        /proc/self/mountinfo | sort -r |
        while read -r mount; do umount --lazy "$(printf %b "$mount")"; done
    exec 9>&- "$@"' sh "$own" "$@"
