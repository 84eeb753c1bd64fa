# Which files a checkpoint has, their sizes, times of last change and inodes; changes nothing.
#
# usage: sh -s -- NONCE PATH
#
# Answer: `NONCE folder` or `NONCE file`, then `NONCE SIZE CONTENT ENTRY INODE NAME` for each file, with the last change
# of its content and of its entry in seconds, at last `NONCE end`; `NONCE none` where there is nothing, `NONCE closed`
# where it cannot be looked into, `NONCE no-command` without `stat`.

main() {
    LC_ALL=C
    export LC_ALL
    if ! command -v stat > /dev/null 2>&1; then printf '%s no-command\n' "$1"; return; fi
    if [ -d "$2" ]; then
        if ! cd "$2" 2> /dev/null || ! ls > /dev/null 2>&1; then printf '%s closed\n' "$1"; return; fi
        printf '%s folder\n' "$1"
        # Names that are not there are no complaint. The files of a download are links to others.
        stat -L -c "$1 %s %Y %Z %i %n" -- model.safetensors.index.json config.json *.safetensors 2> /dev/null
    elif [ -f "$2" ]; then
        printf '%s file\n' "$1"
        stat -L -c "$1 %s %Y %Z %i %n" -- "$2"
    else
        printf '%s none\n' "$1"
        return
    fi
    printf '%s end\n' "$1"
}

main "$@"
