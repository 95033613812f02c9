# Takes away what is left of a test process's directories once the process is gone.
#
# Reads `+ DIR` and `- DIR`, a line each, until whoever writes them is gone, however it went. Then,
# of each directory that was not taken back: kills the processes that bear it in their command line
# or have their root in it (containers), unmounts, detaches loop devices, and deletes. A mount that
# will not go keeps its directory, and a line says so.
trap '' HUP INT TERM
set -f
left=
while read -r sign dir; do
    others=
    for one in $left; do [ "$one" = "$dir" ] || others="$others $one"; done
    left=$others
    [ "$sign" = - ] || left="$dir$left"
done

mounts() { # the newest first: it may lie upon an older one
    awk -v dir="$1" '$5 == dir || index($5, dir "/") == 1 { print $5 }' /proc/self/mountinfo | tac
}

kill_users() { # fails where there was none to kill
    killed=
    for process in $(ls /proc | grep -E '^[0-9]+$'); do
        grep -qsF "$1" "/proc/$process/cmdline" ||
            awk -v dir="$1" '$5 == "/" && index($4, dir) { found = 1 } END { exit !found }' \
                "/proc/$process/mountinfo" || continue
        kill -KILL "$process"
        killed=yes
    done
    [ "$killed" ]
}

take_away() {
    # A process that is killed may have started another a moment before: looked for once more.
    for _ in 1 2 3 4 5 6 7 8 9 10; do kill_users "$1" || break; sleep 0.1; done
    mounts "$1" | while read -r mount; do
        mount=$(printf '%b' "$mount")
        umount "$mount" || umount --lazy "$mount"
    done
    losetup --list --noheadings --raw --output NAME,BACK-FILE | while read -r device file; do
        case $file in "$1"/*) losetup --detach "$device" ;; esac
    done
    [ -z "$(mounts "$1")" ] && rm -rf --one-file-system "$1"
}

for dir in $left; do
    for _ in 1 2 3 4 5 6 7 8 9 10; do
        take_away "$dir" 2>/dev/null && continue 2
        sleep 0.5
    done
    echo "$dir was left behind by a test that was killed: $(mounts "$dir" | tr '\n' ' ')" >&2
done
