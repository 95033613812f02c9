#!/bin/sh
# Runs a program in a mount namespace of its own, without the mounts of other tests.
#
#   enter-namespace.sh LOCK PROPAGATION OWN PROGRAM [ARGUMENT …]
#
# A new namespace has a copy of each mount, and for a moment really holds the volumes of every test
# that runs beside this one. So that nothing is released in that moment, releases share LOCK, and a
# new namespace has it alone until it has unmounted what lies below the directories of other tests;
# what lies below OWN stays.
lock=$1; propagation=$2; own=${3%/}; shift 3
exec 9>"$lock"; flock 9
exec unshare --mount --propagation "$propagation" sh -c '
    own=$1; shift
    awk -v own="$own/" "index(\$5, \"/tmp/berth-\") == 1 && index(\$5, own) != 1 { print \$5 }" \
        /proc/self/mountinfo | sort -r |
        while read -r at; do umount --lazy "$(printf %b "$at")"; done
    exec 9>&- "$@"' sh "$own" "$@"
