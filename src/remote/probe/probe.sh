# Reads what is asked for and prints one framed answer; changes nothing on the host. `frame.sh`, `sockets.sh` and
# `container.sh` come before it. Needs a POSIX shell, /proc and coreutils; grep, systemctl, journalctl and nvidia-smi are used
# where they are.
#
# usage: sh -s -- NONCE [port N] [pid N] [file PATH] [log PATH BYTES] [unit NAME JOURNAL-LINES] [container NAME LOG-LINES CHANGED] [overrides FOLDER] [gpus yes] [module PATH FILE] ...

main() {
    begin "$1" || return 0
    shift
    most_processes=128
    ports= pids= unit= lines= container= tail= changed= space= overrides= gpus= files=0 logs=0
    host_facts
    while [ $# -ge 2 ]; do
        case $1 in
            port) ports="$ports $2" ;;
            pid) pids="$pids $2" ;;
            file) one_file "$2" ;;
            log) one_log "$2" "$3"; shift ;;
            unit) unit=$2 lines=$3; shift ;;
            container) container=$2 tail=$3 changed=$4; shift 2 ;;
            overrides)
                overrides=$2
                # The home is that of whoever runs this.
                case $overrides in "~/"*) overrides=$HOME/${overrides#??} ;; esac
                emit overrides text whole "$overrides" ;;
            gpus) gpus=$2 ;;
            module) one_module "$2" "$3"; shift ;;
        esac
        shift 2
    done
    invocation= group= main_pid=
    if [ -n "$unit" ]; then unit_facts; fi
    if [ -n "$container" ]; then container_space; container_facts "$tail" "$changed"; fi
    sockets
    choose
    for pid in $chosen; do one_process "$pid"; done
    if [ $modules -gt 0 ]; then imports "$(eldest_owner)"; fi
    if [ -n "$gpus" ]; then gpu_facts; fi
    finish
}

# one_file PATH: where it is, how long and how old, and its text.
one_file() {
    take "file.$files.path" 4096 printf %s "$1"
    take "file.$files.stat" 128 stat -L -c '%s %Y %i %F' -- "$1"
    if [ -f "$1" ] || [ ! -e "$1" ]; then
        take "file.$files.text" 1048576 contents "$1" 1048577
    else
        take "file.$files.text" 128 not_plain
    fi
    files=$((files + 1))
}

not_plain() { echo 'not a plain file'; return 1; }

one_log() {
    take "log.$logs.path" 4096 printf %s "$1"
    take "log.$logs.stat" 128 stat -L -c '%s %Y %i %F' -- "$1"
    if [ -f "$1" ] || [ ! -e "$1" ]; then
        take "log.$logs.tail" "$2" tail -c "$2" -- "$1"
    else
        take "log.$logs.tail" 128 not_plain
    fi
    logs=$((logs + 1))
}

properties=Id,LoadState,ActiveState,SubState,Result,MainPID,ExecMainStartTimestamp,NRestarts,InvocationID,ControlGroup,FragmentPath,DropInPaths,NeedDaemonReload,Environment,EnvironmentFiles,PassEnvironment,UnsetEnvironment,ExecStart,Type,Restart,User,WorkingDirectory,StartLimitBurst,StartLimitIntervalUSec

unit_facts() {
    need unit.show systemctl || return 0
    take unit.show 131072 clean timeout 10 systemctl show --all --no-pager -p "$properties" -- "$unit"
    take unit.cat 262144 clean timeout 10 systemctl cat --no-pager -- "$unit"
    shown=$(timeout 10 systemctl show --no-pager -p InvocationID,ControlGroup,EnvironmentFiles,MainPID,ExecStart -- "$unit" 2> /dev/null)
    while IFS= read -r line; do
        case $line in
            InvocationID=*) invocation=${line#*=} ;;
            ControlGroup=*) group=${line#*=} ;;
            MainPID=0) ;;
            MainPID=*) main_pid=${line#*=} ;;
            ExecStart=*'argv[]='*)
                # The script that the unit runs comes with the same answer.
                words=${line#*'argv[]='}
                for word in ${words%%' ;'*}; do
                    case $word in /*.sh) one_file "$word" ;; esac
                done ;;
            EnvironmentFiles=?*)
                path=${line#*=}
                path=${path%" (ignore_errors="*}
                # systemd takes patterns here; without a match the pattern itself is reported as not there.
                for file in $path; do one_file "$file"; done ;;
        esac
    done << EOT
$shown
EOT
    if need journal journalctl; then
        if [ -n "$invocation" ]; then
            take journal 524288 clean timeout 15 journalctl "_SYSTEMD_INVOCATION_ID=$invocation" -o json --all --no-pager -n "$lines"
        else
            take journal 128 no_invocation
        fi
    fi
}

no_invocation() { echo 'the unit does not run, so no start has a journal'; return 1; }

# Which processes are worth reading: owners and named ones, what started them, and everything that belongs to them.
choose() {
    chosen= number=0
    all=
    for folder in /proc/[0-9]*; do
        pid=${folder#/proc/}
        { slurp < "$folder/stat"; } 2> /dev/null || continue
        set -- ${text##*) }
        [ $# -ge 20 ] || continue
        all="$all $pid"
        eval "parent_$pid=$2 session_$pid=$4"
    done
    seeds="$owners $pids $main_pid"
    for pid in $owners; do pick "$pid" owner; done
    for pid in $pids $main_pid; do pick "$pid" named; done
    for pid in $seeds; do
        eval "above=\${parent_$pid:-0}"
        while [ "$above" -gt 0 ] 2> /dev/null; do
            pick "$above" ancestor
            eval "above=\${parent_$above:-0}"
        done
    done
    # Children come after their parents only as a rule, so that the list is walked until nothing is added.
    family=" $seeds "
    again=yes
    while [ -n "$again" ]; do
        again=
        for pid in $all; do
            case $family in *" $pid "*) continue ;; esac
            eval "above=\$parent_$pid"
            case $family in *" $above "*) family="$family$pid "; again=yes; pick "$pid" descendant ;; esac
        done
    done
    groups=" $group "
    for pid in $seeds; do
        { slurp < "/proc/$pid/cgroup"; } 2> /dev/null || continue
        for path in $text; do
            case $path in *.service* | *docker* | *libpod* | *kubepods*) groups="$groups${path##*:} " ;; esac
        done
    done
    case $groups in *[!\ ]*)
        for pid in $all; do
            { slurp < "/proc/$pid/cgroup"; } 2> /dev/null || continue
            for path in $text; do
                path=${path##*:}
                for wanted in $groups; do
                    case $path in "$wanted" | "$wanted"/*) pick "$pid" group ;; esac
                done
            done
        done ;;
    esac
    for seed in $seeds; do
        eval "wanted=\${session_$seed:-none}"
        for pid in $all; do
            eval "session=\$session_$pid"
            if [ "$session" = "$wanted" ]; then pick "$pid" session; fi
        done
    done
    emit processes text whole "$(set -- $all; echo "seen $#"; set -- $chosen; echo "chosen $#"; echo "left $left")"
}

left=0

# The owner that no other owner started.
eldest_owner() {
    for pid in $owners; do
        eval "above=\${parent_$pid:-0}"
        case " $owners " in *" $above "*) ;; *) printf %s "$pid"; return 0 ;; esac
    done
}

# pick PID RELATION: the first relation counts.
pick() {
    case " $chosen " in *" $1 "*) return 0 ;; esac
    if [ "$number" -ge "$most_processes" ]; then left=$((left + 1)); return 0; fi
    number=$((number + 1))
    chosen="$chosen $1"
    eval "relation_$1=$2"
}

one_process() {
    eval "emit proc.$1.relation text whole \"\$relation_$1\""
    take "proc.$1.stat" 2048 contents "/proc/$1/stat" 2049
    take "proc.$1.cmdline" 131072 contents "/proc/$1/cmdline" 131073
    take "proc.$1.environ" 262144 contents "/proc/$1/environ" 262145
    take "proc.$1.cwd" 4096 readlink -v "/proc/$1/cwd"
    take "proc.$1.exe" 4096 readlink -v "/proc/$1/exe"
    take "proc.$1.cgroup" 4096 cat "/proc/$1/cgroup"
    take "proc.$1.uid" 32 stat -c %u "/proc/$1"
    take "proc.$1.out" 4096 readlink -v "/proc/$1/fd/1"
    if [ -n "$overrides" ]; then
        case $(eval "echo \$relation_$1") in owner | named | ancestor) scripts_of "$1" ;; esac
    fi
}

# The scripts of ours that a process was started with.
scripts_of() {
    words=$(tr '\0' '\n' < "/proc/$1/cmdline" 2> /dev/null)
    while IFS= read -r word; do
        case $word in "$overrides"/*.sh)
            case $had in *"$nl$word$nl"*) ;; *) had="$had$nl$word$nl"; one_file "$word" ;; esac ;;
        esac
    done << EOT
$words
EOT
}

had=

gpu_facts() {
    need gpu.list nvidia-smi || return 0
    take gpu.list 65536 clean timeout 10 nvidia-smi --format=csv,noheader,nounits \
        --query-gpu=index,uuid,name,driver_version,memory.total,memory.used,utilization.gpu,temperature.gpu,compute_cap
    take gpu.apps 65536 clean timeout 10 nvidia-smi --format=csv,noheader,nounits --query-compute-apps=pid,gpu_uuid,used_memory
}

main "$@" < /dev/null
