# A container of docker or podman; changes nothing. `frame.sh` comes before it.
#
# A copy of ours is called `NAME.patchbench-TAG`; of the container and its copies, the one that runs is looked at.

# container_tool NAME: the command that knows the container; complains where none does.
container_tool() {
    complaint=
    for one in docker podman; do
        command -v "$one" > /dev/null 2>&1 || continue
        if said=$(timeout 20 "$one" container inspect --format '{{.Id}}' -- "$1" 2>&1); then
            echo "$one"
            return 0
        fi
        complaint="$complaint$one: $said; "
    done
    if [ -n "$complaint" ]; then echo "$complaint" | tr '\n' ' '; else echo 'there is neither docker nor podman'; fi
    return 1
}

says() { timeout 20 "$tool" container inspect --format "$2" -- "$1" 2> /dev/null; }

container_names() { clean timeout 20 "$tool" ps --all --format '{{.Names}}'; }

# Sets `tool`, and where a container runs `current`; the ports of one with a network of its own are looked for there.
container_space() {
    current=
    tool=$(container_tool "$container") || { tool=; return 1; }
    # It may be asked for by its id.
    own=$(says "$container" '{{.Name}}')
    own=${own#/}
    for one in $(container_names | grep -F "$own.patchbench-") "$container"; do
        case $one in "$container" | "$own.patchbench-"*) ;; *) continue ;; esac
        if [ "$(says "$one" '{{.State.Running}}')" = true ]; then current=$one; break; fi
    done
    if [ -z "$current" ] || [ "$(says "$current" '{{.HostConfig.NetworkMode}}')" = host ]; then return 0; fi
    space=$(says "$current" '{{.State.Pid}}')
    published=$(timeout 20 "$tool" port "$current" 2> /dev/null)
    for port in $ports; do
        while read -r inner _ outer; do
            case "$inner $outer" in */tcp' '*:"$port") eval "inner_$port=${inner%/tcp}" ;; esac
        done << EOT
$published
EOT
    done
}

# container_facts LOG-LINES CHANGED
container_facts() {
    take container.tool 4096 container_tool "$container"
    [ -n "$tool" ] || return 0
    take container.names 65536 container_names
    take container.own 524288 clean timeout 20 "$tool" container inspect -- "$container"
    take container.current 524288 clean timeout 20 "$tool" container inspect -- "${current:-$container}"
    take container.log 524288 timeout 20 "$tool" logs --tail "$1" -- "${current:-$container}"
    [ "$2" = yes ] || return 0
    take container.changed 262144 clean timeout 60 "$tool" diff -- "$container"
    if [ "${current:-$container}" != "$container" ]; then take container.edited 262144 clean timeout 60 "$tool" diff -- "$current"; fi
    take container.written 64 clean timeout 60 "$tool" container inspect --size --format '{{.SizeRw}}' -- "$container"
}
