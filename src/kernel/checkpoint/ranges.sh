# Bytes of files, by range; changes nothing.
#
# usage: sh -s -- NONCE (FILE FIRST LENGTH)...    FIRST counts from 1
#
# Answer: for each range `NONCE SIZE CONTENT ENTRY INODE` of its file, as in `survey.sh`, then its bytes as they are; at
# last `NONCE end`. A file that cannot be read ends the answer, and its complaint is on standard error.

main() {
    LC_ALL=C
    export LC_ALL
    nonce=$1
    shift
    while [ $# -ge 3 ]; do
        stat -L -c "$nonce %s %Y %Z %i" -- "$1" || return 1
        tail -c "+$2" -- "$1" | head -c "$3" || return 1
        shift 3
    done
    printf '%s end\n' "$nonce"
}

main "$@"
