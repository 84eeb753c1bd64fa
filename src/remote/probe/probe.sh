# Reads what is asked for and prints one framed answer; changes nothing on the host.
# Needs a POSIX shell, /proc and coreutils; grep, systemctl, journalctl and nvidia-smi are used where they are.
#
# usage: sh -s -- NONCE [port N] [pid N] [file PATH] [log PATH BYTES] [unit NAME JOURNAL-LINES] [overrides FOLDER] [gpus yes] ...
#
# Answer: `patchbench-probe VERSION NONCE`, then for each value
#   section NAME LENGTH ENCODING FLAG
#   LENGTH bytes and a newline
# with the encodings `text`, `base64` and `unread` (base64 of the reason), and the flags `whole`, `truncated`,
# `failed`, `no-command` and `too-much`; at last `end NONCE COUNT`.
#
# Everything stands in one function, so that the shell has read it all before anything runs: nothing that
# runs can eat the rest of the script, and a script that was cut off does nothing.

main() {
    LC_ALL=C
    export LC_ALL
    PATH="$PATH:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
    export PATH
    nl='
'
    nonce=$1
    shift
    count=0
    total=0
    # All values together, encoded; one more value may go over it.
    bound=6000000
    most_processes=128
    ports= pids= unit= lines=400 overrides= gpus= files=0 logs=0
    printf 'patchbench-probe 1 %s\n' "$nonce"
    for tool in base64 head tail tr cat readlink stat date uname id ls timeout; do
        command -v "$tool" > /dev/null 2>&1 || emit "tool.$tool" unread no-command ''
        case $tool in base64 | head | tr | cat)
            command -v "$tool" > /dev/null 2>&1 || { finish; return; } ;;
        esac
    done
    host_facts
    while [ $# -ge 2 ]; do
        case $1 in
            port) ports="$ports $2" ;;
            pid) pids="$pids $2" ;;
            file) one_file "$2" ;;
            log) one_log "$2" "$3"; shift ;;
            unit) unit=$2 lines=$3; shift ;;
            overrides) overrides=$2 ;;
            gpus) gpus=$2 ;;
        esac
        shift 2
    done
    invocation= group= main_pid=
    if [ -n "$unit" ]; then unit_facts; fi
    sockets
    choose
    for pid in $chosen; do one_process "$pid"; done
    if [ -n "$gpus" ]; then gpu_facts; fi
    finish
}

finish() { printf 'end %s %s\n' "$nonce" "$count"; }

# emit NAME ENCODING FLAG PAYLOAD
emit() {
    printf 'section %s %s %s %s\n%s\n' "$1" "${#4}" "$2" "$3" "$4"
    count=$((count + 1))
    total=$((total + ${#4}))
}

# take NAME MOST COMMAND...: the output of a command, at most so many bytes; its complaint where it fails.
take() {
    name=$1 most=$2
    shift 2
    if [ "$total" -ge "$bound" ]; then emit "$name" unread too-much ''; return; fi
    # `.` and `!` are no letters of base64: they say on the same way how the command ended.
    value=$( { { if "$@" 2>&1; then printf . >&3; else printf ! >&3; fi; } \
        | head -c $((most + 1)) | base64 | tr -d '\n'; } 3>&1 )
    ended=none
    case $value in
        *.*) ended=well; value=${value%%.*}${value#*.} ;;
        *!*) ended=badly; value=${value%%!*}${value#*!} ;;
    esac
    size=$((${#value} / 4 * 3))
    case $value in *==) size=$((size - 2)) ;; *=) size=$((size - 1)) ;; esac
    # A command whose output is cut off ends badly because of that.
    if [ "$size" -gt "$most" ]; then emit "$name" base64 truncated "$value"
    elif [ $ended = well ]; then emit "$name" base64 whole "$value"
    else emit "$name" unread failed "$value"
    fi
}

# need NAME TOOL: whether a tool is there; says so where it is not.
need() {
    command -v "$2" > /dev/null 2>&1 && return 0
    emit "$1" unread no-command ''
    return 1
}

contents() { head -c "$2" -- "$1"; }

slurp() {
    # Builtins alone; a short name may hold newlines.
    text=
    while IFS= read -r line || [ -n "$line" ]; do text="$text $line"; done
}

host_facts() {
    take host.time 64 date +%s.%N
    take host.boot_id 64 cat /proc/sys/kernel/random/boot_id
    take host.btime 64 boot_time
    if need host.ticks getconf; then take host.ticks 32 getconf CLK_TCK; fi
    take host.kernel 256 uname -srm
    take host.name 256 uname -n
    take host.uid 32 id -u
}

boot_time() {
    while read -r key value _; do
        if [ "$key" = btime ]; then printf '%s' "$value"; return 0; fi
    done < /proc/stat
    echo 'no btime in /proc/stat'
    return 1
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
    take unit.show 131072 timeout 10 systemctl show --all --no-pager -p "$properties" -- "$unit"
    take unit.cat 262144 timeout 10 systemctl cat --no-pager -- "$unit"
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
            take journal 524288 timeout 15 journalctl "_SYSTEMD_INVOCATION_ID=$invocation" -o json --all --no-pager -n "$lines"
        else
            take journal 128 no_invocation
        fi
    fi
}

no_invocation() { echo 'the unit does not run, so no start has a journal'; return 1; }

listening() {
    if command -v grep > /dev/null 2>&1; then
        grep -e local_address -e ' 0A ' "$1"
    else
        while IFS= read -r line; do
            case $line in *local_address* | *' 0A '*) printf '%s\n' "$line" ;; esac
        done < "$1"
    fi
}

# Who has the sockets open that listen on the wanted ports.
sockets() {
    take tcp 262144 listening /proc/net/tcp
    take tcp6 262144 listening /proc/net/tcp6
    owners=
    [ -n "$ports" ] || return 0
    table=$(listening /proc/net/tcp 2> /dev/null; listening /proc/net/tcp6 2> /dev/null)
    pattern= wanted=
    for port in $ports; do
        hex=$(printf %04X "$port")
        while read -r _ local _ state _ _ _ _ _ inode _; do
            case $state$local in
                0A*:"$hex") wanted="$wanted $port:$inode"; pattern="$pattern -e socket:.$inode.\$" ;;
            esac
        done << EOT
$table
EOT
    done
    hidden=0
    for folder in /proc/[0-9]*/fd; do [ -r "$folder" ] || hidden=$((hidden + 1)); done
    open=
    if [ -n "$pattern" ]; then
        if command -v grep > /dev/null 2>&1; then
            open=$(ls -l /proc/[0-9]*/fd 2> /dev/null | grep -e '^/proc/' $pattern)
        else
            open=$(ls -l /proc/[0-9]*/fd 2> /dev/null)
        fi
    fi
    for port in $ports; do
        said="hidden $hidden"
        for pair in $wanted; do
            [ "${pair%:*}" = "$port" ] || continue
            inode=${pair#*:}
            said="$said${nl}listen $inode"
            while IFS= read -r line; do
                case $line in
                    /proc/*/fd:) pid=${line#/proc/}; pid=${pid%/fd:} ;;
                    *"socket:[$inode]") said="$said${nl}owner $inode $pid"; owners="$owners $pid" ;;
                esac
            done << EOT
$open
EOT
        done
        emit "port.$port" text whole "$said"
    done
}

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
    take gpu.list 65536 timeout 10 nvidia-smi --format=csv,noheader,nounits \
        --query-gpu=index,uuid,name,driver_version,memory.total,memory.used,utilization.gpu,temperature.gpu,compute_cap
    take gpu.apps 65536 timeout 10 nvidia-smi --format=csv,noheader,nounits --query-compute-apps=pid,gpu_uuid,used_memory
}

main "$@" < /dev/null
