# The frame of an answer, and what every script reads of a host; a script of its own comes after it.
#
# Answer: `patchbench-probe VERSION NONCE`, then for each value
#   section NAME LENGTH ENCODING FLAG
#   LENGTH bytes and a newline
# with the encodings `text`, `base64` and `unread` (base64 of the reason), and the flags `whole`, `truncated`,
# `failed`, `no-command` and `too-much`; at last `end NONCE COUNT`.
#
# Everything stands in functions that the last line of the script calls, so that the shell has read it all before
# anything runs: nothing that runs can eat the rest of the script, and a script that was cut off does nothing.

# begin NONCE: the head of the answer. Fails, with the answer finished, where nothing can be read.
begin() {
    LC_ALL=C
    export LC_ALL
    PATH="$PATH:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
    export PATH
    nl='
'
    nonce=$1
    count=0
    total=0
    # All values together, encoded; one more value may go over it.
    bound=6000000
    printf 'patchbench-probe 1 %s\n' "$nonce"
    for tool in base64 head tail tr cat readlink stat date uname id ls timeout; do
        command -v "$tool" > /dev/null 2>&1 || emit "tool.$tool" unread no-command ''
        case $tool in base64 | head | tr | cat)
            command -v "$tool" > /dev/null 2>&1 || { finish; return 1; } ;;
        esac
    done
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

# clean COMMAND...: its output alone where it ends well; its complaint where it does not.
clean() { "$@" 2> /dev/null || "$@" 2>&1 > /dev/null; }

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

