# Who listens on the ports in `$ports`: sets `owners`, and `owners_PORT` for each port. `frame.sh` comes before it.
#
# `space` is a process in whose network the ports are looked for, and `inner_PORT` what a port is called there.

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
    tables=/proc/${space:-self}/net
    take tcp 262144 listening "$tables/tcp"
    take tcp6 262144 listening "$tables/tcp6"
    owners=
    [ -n "$ports" ] || return 0
    table=$(listening "$tables/tcp" 2> /dev/null; listening "$tables/tcp6" 2> /dev/null)
    pattern= wanted=
    for port in $ports; do
        eval "inner=\${inner_$port:-$port}"
        hex=$(printf %04X "$inner")
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
                    *"socket:[$inode]") said="$said${nl}owner $inode $pid"; owners="$owners $pid"
                        eval "owners_$port=\"\${owners_$port-} $pid\"" ;;
                esac
            done << EOT
$open
EOT
        done
        emit "port.$port" text whole "$said"
    done
}

