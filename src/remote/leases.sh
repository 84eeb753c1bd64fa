# The leases that stand on a host, in the folders that are named; changes nothing. `frame.sh` comes before it.
#
# usage: sh -s -- NONCE FOLDER...

main() {
    begin "$1" || return 0
    shift
    number=0
    for folder in "$@"; do
        case $folder in "~/"*) folder=$HOME/${folder#??} ;; esac
        # A folder that is there and cannot be looked into says nothing about what it holds.
        if [ -e "$folder" ] && { [ ! -x "$folder" ] || { [ -e "$folder/leases" ] && [ ! -r "$folder/leases" ]; }; }; then
            emit "unread.$number" text whole "$folder"
            continue
        fi
        for lease in "$folder"/leases/*; do
            [ -e "$lease/token" ] || continue
            emit "lease.$number.path" text whole "$lease"
            for file in holder token until restored program restore.sh; do
                take "lease.$number.$file" 262144 cat "$lease/$file"
            done
            number=$((number + 1))
        done
    done
    finish
}

main "$@" < /dev/null
