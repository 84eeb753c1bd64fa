# Reads what a host keeps of its past and prints one framed answer; changes nothing on the host. `frame.sh` and
# `sockets.sh` come before it. Needs a POSIX shell, /proc and coreutils; grep, journalctl, systemctl, git, find,
# sha256sum and nvidia-smi are used where they are, and named where they are not.
#
# usage: sh -s -- NONCE SINCE [target NAME [unit NAME] process PORT [script PATH] [checkout FOLDER] [checkpoint FOLDER] [module PATH]...]...
#
# SINCE is in seconds of Unix time; PORT is 0 where there is none. Of a file only its name, times, length and, for a
# module of a wheel, its hash leave the host.

main() {
    begin "$1" || return 0
    # Logs without a zone are written in the host's own.
    unset TZ GIT_DIR GIT_WORK_TREE GIT_INDEX_FILE
    since=$2
    shift 2
    now=$(date +%s)
    minutes=$(((${now:-0} - since) / 60 + 2))
    host_facts
    ports=
    ports_of "$@"
    sockets
    host_history
    number=-1
    while [ $# -ge 2 ]; do
        case $1 in
            target)
                number=$((number + 1))
                t=t$number
                unit= main_pid= checkout= sites= modules=0
                emit "$t.name" text whole "$2" ;;
            unit) unit_history "$2" ;;
            process) process_history "$2" ;;
            script) take "$t.script" 8192 dates "$2" ;;
            checkout) checkout_history "$2" ;;
            checkpoint) take "$t.checkpoint" 262144 dates_in "$2" ;;
            module) module_history "$2"; modules=$((modules + 1)) ;;
        esac
        shift 2
    done
    finish
}

ports_of() {
    while [ $# -ge 2 ]; do
        case $1 in process) if [ "$2" != 0 ]; then ports="$ports $2"; fi ;; esac
        shift 2
    done
}

# fail NAME REASON
fail() { take "$1" 2048 complain "$2"; }

complain() { printf '%s\n' "$1"; return 1; }

# dates PATH...: one line each: changed content, changed inode, length, kind, path. Complaints stand between them.
dates() {
    left=$# kept=0
    while [ "$left" -gt 0 ]; do
        path=$1
        shift
        left=$((left - 1))
        case $path in
            *"$nl"*) echo 'a name that holds a line end' ;;
            *)
                if [ "$kept" -lt 1000 ]; then set -- "$@" "$path"; kept=$((kept + 1)); else echo 'more than 1000 files'; break; fi ;;
        esac
    done
    # What was not looked at stands first.
    while [ "$left" -gt 0 ]; do shift; left=$((left - 1)); done
    [ $# -gt 0 ] || return 0
    stat -L -c '%Y|%Z|%s|%F|%n' -- "$@" 2>&1 || :
}

# The times of a folder and of what stands in it.
dates_in() {
    folder=$1
    set -- "$folder" "$folder"/*
    [ -e "$2" ] || set -- "$folder"
    dates "$@"
}

# dates_of LIST: the times of the paths in a text, one a line.
dates_of() {
    IFS=$nl
    set -f
    set -- $1
    dates "$@"
}

# --- the host ---

host_history() {
    if need host.oldest journalctl; then
        kept=volatile
        for folder in /var/log/journal/*/; do if [ -d "$folder" ]; then kept=persistent; fi; done
        emit host.journal text whole "$kept"
        take host.oldest 65536 oldest
        take host.boots 131072 timeout 20 journalctl --list-boots --utc --no-pager
        if need host.kernel_log grep; then
            take host.kernel_log 524288 kernel_log
            take host.kernel_before 65536 kernel_before
        fi
    fi
    if need host.dmesg dmesg && need host.dmesg grep; then take host.dmesg 524288 kernel_ring; fi
    take host.driver 512 head -n 1 /proc/driver/nvidia/version
    if need host.ecc nvidia-smi; then
        take host.ecc 65536 timeout 20 nvidia-smi --format=csv,noheader,nounits \
            --query-gpu=index,pci.bus_id,driver_version,ecc.errors.corrected.volatile.total,ecc.errors.uncorrected.volatile.total
    fi
    if [ -e /var/log/dpkg.log ]; then
        emit host.packages text whole dpkg
        take host.dpkg 262144 dpkg_log
    elif command -v rpm > /dev/null 2>&1; then
        emit host.packages text whole rpm
        take host.rpm 524288 timeout 20 rpm -qa --qf '%{INSTALLTIME} %{NAME} %{VERSION}-%{RELEASE}\n'
    else
        emit host.packages text whole none
    fi
}

oldest() { timeout 20 journalctl --no-pager -o json --output-fields=_BOOT_ID | head -n 1; }

telling() {
    grep -e '^ended ' -e 'Linux version' -e 'NVRM: loading' -e 'NVRM: Xid' -e 'EDAC .*[CU]E' -e 'Hardware Error'
}

# Newest first, so that a cut loses the oldest.
kernel_log() {
    { timeout 20 journalctl -r --since "@$since" _TRANSPORT=kernel -o json --output-fields=MESSAGE --no-pager; echo "ended $?"; } | telling
}

# What the kernel and the driver called themselves last before the time.
kernel_before() {
    for words in 'Linux version' 'NVRM: loading'; do
        timeout 15 journalctl -r --until "@$since" _TRANSPORT=kernel -o json --output-fields=MESSAGE --no-pager | grep -m 1 -F -e "$words"
    done
    return 0
}

kernel_ring() {
    { dmesg; echo "ended $?"; } | { IFS= read -r first; printf 'first %s\n' "$first"; printf '%s\n' "$first" | telling; telling; }
}

# Where the log begins, and its lines since the day of the time, with their times in seconds.
dpkg_log() {
    day=$(date -d "@$since" +%Y-%m-%d) || { echo "date: $day"; return 1; }
    number_of "$day"
    limit=$as_number begins=
    lines=
    for file in /var/log/dpkg.log.9.gz /var/log/dpkg.log.8.gz /var/log/dpkg.log.7.gz /var/log/dpkg.log.6.gz \
        /var/log/dpkg.log.5.gz /var/log/dpkg.log.4.gz /var/log/dpkg.log.3.gz /var/log/dpkg.log.2.gz \
        /var/log/dpkg.log.1 /var/log/dpkg.log; do
        [ -e "$file" ] || continue
        # A file that was last written before the time shows only that the others reach back far enough.
        if [ "$(stat -c %Y -- "$file")" -lt "$since" ]; then begins=before; continue; fi
        case $file in
            *.gz) text=$(gzip -dc -- "$file" 2>&1) || { printf '%s\n' "$text"; return 1; } ;;
            *) text=$(cat -- "$file" 2>&1) || { printf '%s\n' "$text"; return 1; } ;;
        esac
        [ -n "$text" ] || continue
        if [ -z "$begins" ]; then
            first=${text%%"$nl"*}
            first=${first%% [a-z]*}
            begins=$(date -d "$first" +%s) || begins=unknown
        fi
        lines="$lines$nl$(printf '%s\n' "$text" | grep -e ' install ' -e ' upgrade ' -e ' remove ' -e ' purge ')"
    done
    echo "begins ${begins:-unknown}"
    shown=0
    printf '%s\n' "$lines" | tail -n 20000 | while read -r day clock verb rest; do
        case $day in [0-9]*-[0-9]*-[0-9]*) ;; *) continue ;; esac
        number_of "$day"
        [ "$as_number" -ge "$limit" ] || continue
        shown=$((shown + 1))
        if [ "$shown" -gt 1000 ]; then echo 'more than 1000 lines'; break; fi
        printf '%s %s %s\n' "$(date -d "$day $clock" +%s)" "$verb" "$rest"
    done
}

number_of() {
    as_number=${1#*-}
    as_number=${1%%-*}${as_number%%-*}${as_number#*-}
}

# --- a systemd unit ---

properties=Id,LoadState,ActiveState,SubState,MainPID,ExecMainStartTimestamp,NRestarts,InvocationID,FragmentPath,DropInPaths,NeedDaemonReload,EnvironmentFiles

show() { TZ=UTC timeout 10 systemctl show --no-pager -p "$properties" -- "$unit"; }

unit_history() {
    unit=$1
    case $unit in *.*) ;; *) unit=$unit.service ;; esac
    files= environment=
    if need "$t.show" systemctl; then
        take "$t.show" 65536 show
        shown=$(show 2> /dev/null)
        while IFS= read -r line; do
            case $line in
                Id=?*) unit=${line#*=} ;;
                MainPID=0) ;;
                MainPID=*) main_pid=${line#*=} ;;
                FragmentPath=?*) files="$files$nl${line#*=}" ;;
                DropInPaths=?*) for path in ${line#*=}; do files="$files$nl$path"; done ;;
                EnvironmentFiles=?*)
                    path=${line#*=}
                    path=${path%" (ignore_errors="*}
                    for path in $path; do environment="$environment$nl$path"; done ;;
            esac
        done << EOT
$shown
EOT
    fi
    # A drop-in that was taken away shows in its folder alone.
    for folder in "/etc/systemd/system/$unit.d" "/run/systemd/system/$unit.d"; do
        if [ -d "$folder" ]; then files="$files$nl$folder"; fi
    done
    take "$t.unitfiles" 65536 dates_of "$files"
    take "$t.envfiles" 65536 dates_of "$environment"
    if need "$t.journal" journalctl; then take "$t.journal" 1048576 unit_journal; fi
}

# Only what systemd itself says, so that nobody else's words read as a start. Newest first.
unit_journal() {
    timeout 20 journalctl -r -n 2000 --since "@$since" "UNIT=$unit" _PID=1 -o json --output-fields=MESSAGE,MESSAGE_ID --no-pager
}

# --- the server's process and its Python ---

process_history() {
    pids=
    if [ "$1" != 0 ]; then eval "pids=\${owners_$1-}"; fi
    had=' '
    for pid in $pids $main_pid; do
        case $had in *" $pid "*) continue ;; esac
        had="$had$pid "
        take "$t.proc.$pid.stat" 2048 contents "/proc/$pid/stat" 2049
        if said=$(packages "$pid" 2>&1); then
            emit "$t.sites.$pid" text whole "$said"
            sites="$sites$nl$said"
        else
            fail "$t.sites.$pid" "$said"
        fi
    done
    take "$t.dist" 524288 dist
}

# The folders of installed packages that a process has mapped files of, or that belong to its Python.
packages() {
    there=$(stat -L -c %d:%i "/proc/$1/root/" 2>&1) || { printf '%s\n' "$there"; return 1; }
    base=
    if [ "$there" != "$(stat -L -c %d:%i /)" ]; then base=/proc/$1/root; fi
    mapped=$(cat "/proc/$1/maps" 2>&1) || { printf '%s\n' "$mapped"; return 1; }
    if command -v grep > /dev/null 2>&1; then
        mapped=$(printf '%s\n' "$mapped" | grep -e /site-packages/ -e /dist-packages/)
    fi
    list=
    while read -r _ _ _ _ _ path; do
        case $path in
            */site-packages/*) add "$base${path%%/site-packages/*}/site-packages" ;;
            */dist-packages/*) add "$base${path%%/dist-packages/*}/dist-packages" ;;
        esac
    done << EOT
$mapped
EOT
    add_of "$(tr '\0' '\n' < "/proc/$1/cmdline" 2> /dev/null | head -n 1)"
    if [ -z "$list" ]; then add_of "$(readlink "/proc/$1/exe")"; fi
    printf %s "$list"
}

# Those that belong to a program in a `bin` folder.
add_of() {
    case $1 in /*/bin/python*) ;; *) return 0 ;; esac
    for folder in "$base${1%/bin/*}"/lib/python3*/site-packages "$base${1%/bin/*}"/lib/python3*/dist-packages; do
        if [ -d "$folder" ]; then add "$folder"; fi
    done
}

add() {
    case "$nl$list$nl" in *"$nl$1$nl"*) ;; *) list="$list${list:+$nl}$1" ;; esac
}

dist() {
    IFS=$nl
    set -f
    set -- $sites
    set +f
    for site in "$@"; do
        set -- "$site" "$site"/*.dist-info
        [ -e "$2" ] || set -- "$site"
        dates "$@"
    done
}

# --- a checkout ---

# Runs no program that the repository names, reaches no network and writes nothing.
quiet_git() {
    GIT_NO_LAZY_FETCH=1 GIT_TERMINAL_PROMPT=0 timeout 20 git -c safe.directory='*' -c core.fsmonitor=false \
        -c core.hooksPath=/dev/null -c protocol.allow=never --no-optional-locks --no-pager -C "$checkout" "$@"
}

checkout_history() {
    checkout=$1
    if ! need "$t.reflog" git; then
        emit "$t.dirty" unread no-command ''
    else
        take "$t.reflog" 524288 quiet_git log -g -n 1000 --no-show-signature --date=raw --format='%h %gd %gs' HEAD
        filters= odd=
        while IFS= read -r key; do
            case $key in
                '') ;;
                *=*) odd=yes ;;
                *.required) filters="$filters$nl$key=false" ;;
                *) filters="$filters$nl$key=" ;;
            esac
        done << EOT
$(quiet_git config --name-only --get-regexp '^filter\..*\.(clean|smudge|process|required)$' 2> /dev/null)
EOT
        if [ -n "$filters" ]; then emit "$t.filters" text whole yes; fi
        # `git -c` ends a name at its first `=`, so that such a filter could not be switched off.
        case $odd in
            '') take "$t.dirty" 262144 dirty ;;
            *) take "$t.dirty" 262144 odd_filter ;;
        esac
    fi
    if need "$t.built" find; then
        recent="( -mmin -$minutes -o -cmin -$minutes )"
        if ! find / -maxdepth 0 -cmin -1 > /dev/null 2>&1; then
            recent="-mmin -$minutes"
            emit "$t.built_by" text whole content
        fi
        take "$t.built" 262144 built
    fi
}

odd_filter() { echo 'a filter of the repository cannot be switched off, so git was not asked'; return 1; }

status() {
    (
        IFS=$nl
        set -f
        set -- status --porcelain=v1 --untracked-files=normal --ignore-submodules=dirty --no-renames
        for setting in $filters; do set -- -c "$setting" "$@"; done
        quiet_git "$@"
    )
}

# One line each: the two letters of the state, both times, the name.
dirty() {
    said=$(status 2>&1) || { printf '%s\n' "$said"; return 1; }
    listed=0
    while IFS= read -r line; do
        case $line in
            '') continue ;;
            [\ MTADRCU?!][\ MTADRCU?!]\ ?*) ;;
            *) printf 'said|%s\n' "$line"; continue ;;
        esac
        listed=$((listed + 1))
        if [ "$listed" -gt 300 ]; then echo 'said|more than 300 files'; break; fi
        path=${line#???}
        state=${line%"$path"}
        dated='-|-'
        # A quoted name is not undone here, and has no times.
        case $path in \"*) ;; *) dated=$(stat -c '%Y|%Z' -- "$checkout/$path" 2> /dev/null) || dated='-|-' ;; esac
        printf '%s|%s|%s\n' "${state% }" "$dated" "$path"
    done << EOT
$said
EOT
}

built() {
    timeout 20 find "$checkout" -name .git -prune -o -type f '(' -name '*.so' -o -name '*.cubin' -o -name '*.ptx' ')' \
        $recent -exec stat -c '%Y|%Z|%s|%F|%n' '{}' + 2>&1 || echo "find: ended with $?"
}

# --- a module that a patch is in ---

module_history() {
    m=$t.module.$modules
    emit "$m.path" text whole "$1"
    within= found=
    while IFS= read -r site; do
        [ -n "$site" ] && [ -z "$found" ] || continue
        rest=$1
        case $rest in "$site"/*) rest=${rest#"$site"/} ;; /*) continue ;; esac
        # A bare file name says too little.
        while :; do
            case $rest in */*) ;; *) break ;; esac
            if [ -f "$site/$rest" ]; then found=$site/$rest within=$site; break; fi
            rest=${rest#*/}
        done
    done << EOT
$sites
EOT
    if [ -z "$found" ]; then
        case $1 in /*) if [ -f "$1" ]; then found=$1; fi ;; esac
        if [ -n "$checkout" ] && [ -f "$checkout/$1" ]; then found=$checkout/$1; fi
    fi
    if [ -z "$found" ]; then fail "$m.times" 'it was not found among the packages of the server nor in the checkout'; return 0; fi
    take "$m.times" 8192 dates "$found"
    if [ -z "$within" ]; then return 0; fi
    inner=${found#"$within"/}
    emit "$m.inner" text whole "$inner"
    if need "$m.hash" sha256sum; then take "$m.hash" 8192 sha256sum -- "$found"; fi
    if need "$m.record" grep; then take "$m.record" 65536 record; fi
}

record() {
    set -- "$within"/*.dist-info/RECORD
    if [ ! -e "$1" ]; then echo 'no wheel has a RECORD beside it'; return 1; fi
    # The second file makes grep name the first.
    grep -F -e "$inner," -- "$@" /dev/null || [ $? -eq 1 ]
}

main "$@" < /dev/null
