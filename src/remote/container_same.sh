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
for field in User WorkingDir Tty OpenStdin StopSignal Umask; do
    # A tool that does not know a field says nothing of either.
    [ "$(says "$own" "{{.Config.$field}}" 2>/dev/null)" = "$(says "$copy" "{{.Config.$field}}" 2>/dev/null)" ] || differs "$field"
done
for part in Healthcheck Volumes ExposedPorts; do
    [ "$(says "$own" "{{json .Config.$part}}" 2>/dev/null)" = "$(says "$copy" "{{json .Config.$part}}" 2>/dev/null)" ] || differs "$part"
done
networks() { says "$1" '{{range $name, $of := .NetworkSettings.Networks}}{{println $name}}{{end}}' | sort; }
[ "$(networks "$own")" = "$(networks "$copy")" ] || [ -z "$(networks "$copy")" ] || differs 'its networks'
[ "$(says "$copy" '{{println .Path}}{{range .Args}}{{println .}}{{end}}')" = "$(printf '%s\n' "$@")" ] || differs 'its command'
variables() { says "$1" '{{range .Config.Env}}{{println .}}{{end}}'; }
kept() { variables "$1" | switched | sort; }
[ "$(kept "$own")" = "$(kept "$copy")" ] || differs 'its variables'
wanted
