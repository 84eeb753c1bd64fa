# What a change must know of its host beside a probe; changes nothing. `frame.sh` comes before it.
#
# usage: sh -s -- NONCE folder PATH [stem NAME] [lease NAME] [log PATH] [unit NAME]
#
# A folder that begins with `~/` is meant under the home of whoever runs this.

main() {
    begin "$1" || return 0
    shift
    folder= stem= lease= log= unit=
    while [ $# -ge 2 ]; do
        case $1 in
            folder) folder=$2 ;;
            stem) stem=$2 ;;
            lease) lease=$2 ;;
            log) log=$2 ;;
            unit) unit=$2 ;;
        esac
        shift 2
    done
    case $folder in "~/"*) folder=$HOME/${folder#??} ;; esac
    emit folder text whole "$folder"
    take host.boot_id 64 cat /proc/sys/kernel/random/boot_id
    take host.uid 32 id -u
    take host.time 64 date +%s.%N
    take environ 262144 contents "/proc/$$/environ" 262145
    if [ -n "$log" ]; then emit log text whole "$(log_place)"; fi
    if [ -n "$stem" ]; then
        take overrides 65536 names "$folder/$stem-"
        take trees 65536 names "$folder/trees/$lease-"
        take runs 65536 runs
        for file in holder token until restored program; do take "lease.$file" 4096 cat "$folder/leases/$lease/$file"; done
        take lease.worker 65536 cat "$folder/leases/$lease/worker"
    fi
    if [ -n "$unit" ]; then unit_ground; fi
    finish
}

# Whether the log could be written, and how long it is.
log_place() {
    place=${log%/*}
    case $log in */*) ;; *) place=. ;; esac
    [ -d "${place:-/}" ] || { echo no-folder; return; }
    if [ -d "$log" ]; then echo no-file; return; fi
    if [ -e "$log" ]; then [ -w "$log" ] || { echo not-writable; return; }
    else [ -w "${place:-/}" ] || { echo not-writable; return; }; fi
    case $(df -P "${place:-/}" 2> /dev/null | tail -n 1) in *' 0 '*%*) echo full; return ;; esac
    echo "writable $(wc -c 2> /dev/null < "$log" || echo 0)"
}

names() { for file in "$1"*; do [ ! -e "$file" ] || printf '%s\n' "$file"; done; }

# The starts of this target that live: by the mark that their processes carry, and by the shell that leads them.
runs() {
    mine=" "
    next=$$
    while [ "${next:-0}" -gt 0 ] 2> /dev/null; do
        mine="$mine$next "
        { slurp < "/proc/$next/stat"; } 2> /dev/null || break
        set -- ${text##*) }
        next=$2
    done
    for file in /proc/[0-9]*/environ; do
        pid=${file#/proc/} pid=${pid%/environ}
        case $mine in *" $pid "*) continue ;; esac
        grep -qsF "PATCHBENCH_RUN=$folder/runs/$stem-" "$file" || continue
        { slurp < "/proc/$pid/stat"; } 2> /dev/null || continue
        set -- ${text##*) }
        # A process with a terminal is a person, whatever it inherited; a zombie is nobody.
        [ "$1" != Z ] && [ "${5:-0}" = 0 ] || continue
        tr '\0' '\n' < "$file" 2> /dev/null | grep "^PATCHBENCH_RUN=" | head -n 1
    done
    read -r boot < /proc/sys/kernel/random/boot_id
    for file in "$folder/runs/$stem-"*.pid; do
        [ -s "$file" ] || continue
        read -r pid ticks of < "$file"
        [ "$of" = "$boot" ] || continue
        { slurp < "/proc/$pid/stat"; } 2> /dev/null || continue
        set -- ${text##*) }
        [ "$1" != Z ] && [ "${20}" = "$ticks" ] && echo "PATCHBENCH_RUN=${file%.pid}"
    done
    return 0
}

unit_ground() {
    need unit.starts journalctl || return 0
    window=$(timeout 10 systemctl show --value -p StartLimitIntervalUSec -- "$unit" 2> /dev/null)
    emit unit.window text whole "$window"
    # What the manager writes for each start that came about or failed (SD_MESSAGE_UNIT_STARTED, SD_MESSAGE_UNIT_FAILED).
    take unit.starts 65536 clean timeout 15 journalctl -q "UNIT=$unit" MESSAGE_ID=39f53479d3a045ac8e11786248231fbf \
        MESSAGE_ID=be02cf6855d2428ba40df7e9d022f03d -o short-unix --no-pager --no-hostname -n 100
}

main "$@" < /dev/null
