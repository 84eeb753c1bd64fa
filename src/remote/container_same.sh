# Whether `$copy` is the same as `$own` but for the words of its command, which are "$@", and the variables that
# `switched` and `wanted` tell of.
says() { "$tool" container inspect --format "$2" -- "$1"; }
differs() { echo "the copy differs from the container in $1" >&2; exit 1; }
says "$copy" '{{.Id}}' >/dev/null 2>&1 || { echo 'there is no copy' >&2; exit 1; }
# What a copy says in other words, and how often it is started by itself, is left out.
config() {
    says "$1" '{{json .HostConfig}}' | sed \
        -e 's/"Binds":\(\[[^]]*\]\|null\),\{0,1\}//' -e 's/"RestartPolicy":{[^}]*},//' \
        -e 's/"ContainerIDFile":"[^"]*",//' -e 's/"Path":"[^"]*",//' -e 's/"ConsoleSize":\[[^]]*\],//' -e 's/,"/\n"/g' | sort
}
other=$({ config "$own"; echo ===; config "$copy"; } | awk '
    /^===$/ { second = 1; next }
    { key = $0; sub(/":.*/, "", key); gsub(/[{"]/, "", key) }
    !second { has[$0]++; next }
    has[$0] > 0 { has[$0]--; next }
    { print key }
    END { for (line in has) if (has[line] > 0) { key = line; sub(/":.*/, "", key); gsub(/[{"]/, "", key); print key } }' | sort -u | tr '\n' ' ')
[ -z "$other" ] || differs "$other"
mounts() { says "$1" '{{range .Mounts}}{{.Type}} {{.Source}} {{.Destination}} {{.RW}}{{println}}{{end}}' | sort; }
[ "$(mounts "$own")" = "$(mounts "$copy")" ] || differs 'its mounts'
for field in User WorkingDir Tty OpenStdin StopSignal; do
    [ "$(says "$own" "{{.Config.$field}}")" = "$(says "$copy" "{{.Config.$field}}")" ] || differs "$field"
done
[ "$(says "$copy" '{{println .Path}}{{range .Args}}{{println .}}{{end}}')" = "$(printf '%s\n' "$@")" ] || differs 'its command'
variables() { says "$1" '{{range .Config.Env}}{{println .}}{{end}}'; }
# The name of the host and the mark of podman are a container's own.
kept() { variables "$1" | switched | grep -v -e '^HOSTNAME=' -e '^container=' | sort; }
[ "$(kept "$own")" = "$(kept "$copy")" ] || differs 'its variables'
wanted
