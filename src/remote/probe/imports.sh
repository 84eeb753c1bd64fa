# Where the server would import the wanted modules from, by Python's own rules and without running any of it: every
# entry of its search path that has the module's package, in the order of the search. Which entries count for this
# process is decided by the reader. `frame.sh` comes before it.

modules=0 entries=0

# module PATH FILE: a module below an entry of the search path, and its file in the checkout (may be empty).
one_module() {
    eval "module_$modules=\$1 source_$modules=\$2 found_$modules=0"
    modules=$((modules + 1))
}

# file_facts NAME FILE: its canonical path; bytes, last change of content and of anything, in seconds; and a sum.
file_facts() {
    take "$1.file" 4096 readlink -f -- "$2"
    take "$1.stat" 128 stat -L -c '%s %Y %Z' -- "$2"
    if [ -f "$2" ]; then take "$1.sum" 64 sum_of "$2"; fi
}

sum_of() { head -c 8388608 -- "$1" | cksum; }

# imports PID
imports() {
    number=0
    while [ $number -lt $modules ]; do
        eval "path=\$source_$number"
        if [ -n "$path" ]; then file_facts "import.$number.source" "$path"; fi
        number=$((number + 1))
    done
    [ -n "$1" ] || return 0
    emit import.pid text whole "$1"
    take import.space 128 readlink -v "/proc/$1/ns/mnt"
    take import.own_space 128 readlink -v /proc/self/ns/mnt
    program=$(readlink "/proc/$1/exe" 2> /dev/null)
    case ${program##*/} in python*) ;; *) return 0 ;; esac
    # A file of another name space has another path there.
    [ "$(readlink "/proc/$1/ns/mnt")" = "$(readlink /proc/self/ns/mnt)" ] || return 0
    here=$(readlink "/proc/$1/cwd" 2> /dev/null)
    given_path= home= search= user_base= python_home=
    # A newline within a variable must not make another one.
    while IFS= read -r line; do
        case $line in
            PYTHONPATH=*) given_path=${line#*=} ;;
            PYTHONHOME=*) python_home=${line#*=} ;;
            PYTHONUSERBASE=*) user_base=${line#*=} ;;
            HOME=*) home=${line#*=} ;;
            PATH=*) search=${line#*=} ;;
        esac
    done << EOT
$(tr '\n\0' '\001\n' < "/proc/$1/environ" 2> /dev/null)
EOT
    first= script= begun= skip=
    while IFS= read -r word; do
        if [ -z "$begun" ]; then first=$word begun=yes; continue; fi
        if [ -n "$skip" ]; then skip=; continue; fi
        case $word in
            -X | -W | --check-hash-based-pycs) skip=yes ;;
            -X?* | -W?* | --*) ;;
            -*m | -*c | -*m?* | -*c?* | -) break ;;
            -*) ;;
            *) script=$word; break ;;
        esac
    done << EOT
$(tr '\n\0' '\001\n' < "/proc/$1/cmdline" 2> /dev/null)
EOT
    started=
    case $first in
        /*) started=$first ;;
        */*) started=$here/$first ;;
        ?*)
            rest=$search:
            while [ -n "$rest" ]; do
                if [ -x "${rest%%:*}/$first" ]; then started=${rest%%:*}/$first; break; fi
                rest=${rest#*:}
            done ;;
    esac
    # A virtual environment is told by the name that the interpreter was started under, not by its file.
    if [ -z "$started" ] || [ "$(readlink -f -- "$started" 2> /dev/null)" != "$program" ]; then
        emit import.unknown_name text whole yes
        started=$program
    fi
    take import.started 4096 printf %s "$started"
    search_path
    emit import.end text whole "$entries"
}

search_path() {
    finders=
    prefix= base=${program%/*}
    base=${base%/*}
    if [ -n "$python_home" ]; then base=${python_home%%:*}; fi
    folder=${started%/*}
    for each in "$folder" "${folder%/*}"; do
        if [ -z "$prefix" ] && [ -f "$each/pyvenv.cfg" ]; then prefix=$each; fi
    done
    if [ -n "$prefix" ]; then take import.venv 4096 contents "$prefix/pyvenv.cfg" 4097; fi
    version=${program##*/python}
    case $version in
        3.*) ;;
        *)
            version=
            for each in "$base"/lib/python3.*/os.py; do
                [ -f "$each" ] || continue
                if [ -n "$version" ]; then emit import.unknown_version text whole "$base"; return 0; fi
                each=${each%/os.py}
                version=${each##*/python}
            done ;;
    esac
    if [ -z "$version" ]; then emit import.unknown_version text whole "$base"; return 0; fi
    emit import.version text whole "$version"
    if [ -z "$script" ]; then entry folder "$here" ''
    else
        case $script in /*) ;; *) script=$here/$script ;; esac
        script=$(readlink -f -- "$script" 2> /dev/null)
        if [ -d "$script" ]; then entry folder "$script" ''; else entry folder "${script%/*}" ''; fi
    fi
    # An empty part is the working folder, as after `PYTHONPATH=/a:$PYTHONPATH` without a value before.
    rest=${given_path:+$given_path:}
    while [ -n "$rest" ]; do
        each=${rest%%:*}
        rest=${rest#*:}
        case $each in /*) ;; '') each=$here ;; *) each=$here/$each ;; esac
        entry variable "$each" PYTHONPATH
    done
    if [ -n "$prefix" ]; then
        site environment "$prefix/lib/python$version/site-packages"
        site environment "$prefix/lib64/python$version/site-packages"
    fi
    # What is outside of a virtual environment counts only where its `pyvenv.cfg` says so.
    site user "${user_base:-$home/.local}/lib/python$version/site-packages"
    site base "$base/lib/python$version/site-packages"
    site base "$base/local/lib/python$version/dist-packages"
    site base "$base/lib/python3/dist-packages"
    site base "$base/lib/python$version/dist-packages"
    # Editable finders stand behind the whole path.
    while IFS= read -r line; do
        case $line in *' '*) finder ${line%%' '*} "${line#*' '}" ;; esac
    done << EOT
$finders
EOT
}

seen_sites=

# site KIND FOLDER: a folder of packages, and the entries that its `.pth` files add behind it.
site() {
    [ -d "$2" ] || return 0
    real=$(readlink -f -- "$2")
    case $seen_sites in *"$nl$real$nl"*) return 0 ;; esac
    seen_sites="$seen_sites$nl$real$nl"
    entry "$1" "$2" ''
    number_of_files=0
    for each_file in "$2"/*.pth; do
        [ -f "$each_file" ] && [ $number_of_files -lt 64 ] || continue
        number_of_files=$((number_of_files + 1))
        while IFS= read -r line; do
            line=${line%"${line##*[! ]}"}
            case $line in
                '' | '#'*) ;;
                'import '* | 'import	'*)
                    name=${line#import?}
                    name=${name%%;*}
                    if [ -f "$2/$name.py" ]; then finders="$finders$1 $2/$name.py$nl"; fi ;;
                /*) entry "$1" "$line" "$each_file" ;;
                *) entry "$1" "$2/$line" "$each_file" ;;
            esac
        done << EOT
$(head -c 65536 -- "$each_file" 2> /dev/null)
EOT
    done
}

# finder KIND FILE: the folders to which an editable installation maps its packages.
finder() {
    mapping=
    while IFS= read -r line; do
        case $line in MAPPING*) mapping=$line; break ;; esac
    done << EOT
$(head -c 262144 -- "$2" 2> /dev/null)
EOT
    number=0
    while [ $number -lt $modules ]; do
        eval "path=\$module_$number"
        top=${path%%/*}
        case $mapping in
            *"'${top%.py}': '"*)
                folder=${mapping#*"'${top%.py}': '"}
                folder=${folder%%"'"*}
                case $path in */*) path=$folder/${path#*/} ;; *) path=$folder.py ;; esac
                found "$number" "$1" finder "$folder" "$2" "$path" ;;
        esac
        number=$((number + 1))
    done
}

# entry KIND FOLDER PTH: an entry of the search path, and which wanted modules have their package in it.
entry() {
    [ -d "$2" ] || return 0
    entries=$((entries + 1))
    if [ $entries -gt 200 ]; then return 0; fi
    number=0
    while [ $number -lt $modules ]; do
        eval "path=\$module_$number"
        top=${path%%/*}
        if [ -f "$2/$top/__init__.py" ] || { [ "$top" = "$path" ] && [ -f "$2/$path" ]; }; then
            found "$number" "$1" package "$2" "$3" "$2/$path"
        elif [ "$top" != "$path" ] && [ -d "$2/$top" ]; then
            found "$number" "$1" namespace "$2" "$3" "$2/$path"
        fi
        number=$((number + 1))
    done
}

# found MODULE KIND WHAT FOLDER BY FILE: at most eight of a module.
found() {
    eval "at=\$found_$1"
    [ "$at" -lt 8 ] || return 0
    eval "found_$1=$((at + 1))"
    emit "import.$1.$at.kind" text whole "$2 $3"
    take "import.$1.$at.folder" 4096 printf %s "$4"
    take "import.$1.$at.by" 4096 printf %s "$5"
    file_facts "import.$1.$at" "$6"
    eval "top=\$module_$1"
    case $5 in /*) packages=${5%/*} ;; *) packages=$4 ;; esac
    for origin in "$packages/${top%%/*}"-*.dist-info/direct_url.json; do
        if [ -f "$origin" ]; then take "import.$1.$at.origin" 2048 contents "$origin" 2049; break; fi
    done
}
