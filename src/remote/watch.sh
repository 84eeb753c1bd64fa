# One look at a start that loads; changes nothing. `frame.sh`, `sockets.sh`, `container.sh` and `belong`, which defines `leads` and
# `members` for `$run`, come before it.
#
# usage: sh -s -- NONCE port N [run PATH] [log PATH OFFSET] [unit NAME CURSOR] [container NAME SINCE]

main() {
    begin "$1" || return 0
    shift
    ports= run= log= offset=0 unit= cursor= container= since= space=
    while [ $# -ge 2 ]; do
        case $1 in
            port) ports=$2 ;;
            run) run=$2 ;;
            log) log=$2 offset=$3; shift ;;
            unit) unit=$2 cursor=$3; shift ;;
            container) container=$2 since=$3; shift ;;
        esac
        shift 2
    done
    take host.boot_id 64 cat /proc/sys/kernel/random/boot_id
    if [ -n "$container" ]; then container_look; fi
    sockets
    for pid in $owners; do
        take "proc.$pid.stat" 2048 contents "/proc/$pid/stat" 2049
        take "cgroup.$pid" 4096 cat "/proc/$pid/cgroup"
    done
    if [ -n "$run" ]; then start_facts; fi
    if [ -n "$unit" ]; then unit_look; fi
    if [ -n "$log" ]; then log_look; fi
    finish
}

# The shell that leads the start, who else belongs to it, and how it ended.
start_facts() {
    belong
    if leads; then emit start.leader text whole "$pid $ticks"; fi
    take start.members 65536 members
    for file in pid exit offset; do take "start.$file" 256 cat "$run.$file"; done
}

# New whole lines of the log. One that became shorter is read from its start.
log_look() {
    size=$(wc -c 2> /dev/null < "$log" || echo 0)
    [ "$size" -ge "$offset" ] || offset=0
    emit log.offset text whole "$offset"
    if [ "$size" -gt "$offset" ]; then take log.new 131072 since "$log"; fi
}

since() { tail -c "+$((offset + 1))" -- "$1" | head -c 131072; }

# A container, and its new lines with their times; those of `since` come again.
container_look() {
    container_space || { take container.state 4096 container_tool "$container"; return 0; }
    take container.state 4096 says "$container" "$state"
    [ -n "$since" ] || since=$(says "$container" '{{json .State.StartedAt}}' | tr -d '"')
    take container.lines 262144 lines_since
}

state='{{.Id}} {{.State.Running}} {{.State.ExitCode}} {{.State.OOMKilled}}'

lines_since() { timeout 20 "$tool" logs --timestamps --since "$since" -- "$container" 2>&1 | head -c 262144; }

unit_look() {
    need unit.show systemctl || return 0
    take unit.show 16384 clean timeout 10 systemctl show --all --no-pager \
        -p ActiveState,SubState,Result,MainPID,NRestarts,InvocationID,ControlGroup,LoadState,NeedDaemonReload -- "$unit"
    need unit.log journalctl || return 0
    invocation=$(timeout 10 systemctl show --value -p InvocationID -- "$unit" 2> /dev/null)
    [ -n "$invocation" ] || return 0
    set -- "_SYSTEMD_INVOCATION_ID=$invocation" --no-pager -o cat --show-cursor
    if [ -n "$cursor" ]; then set -- "$@" "--after-cursor=$cursor"; fi
    take unit.log 131072 clean timeout 15 journalctl "$@" -n 500
}

main "$@" < /dev/null
