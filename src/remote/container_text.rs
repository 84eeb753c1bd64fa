//! The POSIX shell texts of a change of a container: a copy of it with other levels takes its place, and it stays as it
//! is. Pure: each text is shown, journaled and run exactly as built here.
//!
//! A container cannot be given another variable, so that a copy is made from what the host says of it. Whether the copy
//! is the same but for its levels is proven on the host before anything is stopped.

use serde_json::Value;

use super::probe::container::Inspect;
use super::script::Ask;
use super::shell_text::{quote, wait_for_jobs};
use crate::engine::procedure::Failure;
use crate::redact;

const SAME: &str = include_str!("container_same.sh");

/// A copy in the making.
#[derive(Clone, Debug)]
pub(super) struct Copy<'a> {
    /// `docker` or `podman`.
    pub(super) tool: &'a str,
    /// What it is a copy of.
    pub(super) of: &'a Inspect,
    /// Its name.
    pub(super) name: &'a str,
    /// Its program and arguments.
    pub(super) argv: &'a [String],
    /// Variables that it must have or lack.
    pub(super) variables: &'a [&'a Ask],
    /// Whether files were changed in the container, which the copy must have too.
    pub(super) committed: bool,
}

impl Copy<'_> {
    /// The image that the copy is made of, where files were changed.
    fn image(&self) -> String {
        self.name.to_lowercase()
    }

    /// Makes the copy, which does not run yet.
    ///
    /// # Errors
    /// It was made with something that a copy would not have.
    pub(super) fn make(&self) -> Result<String, Failure> {
        check_can_copy(self.of)?;
        let (tool, own, name) = (self.tool, quote(&self.of.name)?, quote(self.name)?);
        let image = if self.committed {
            quote(&self.image())?
        } else {
            quote(text(self.of.at(&["Image"])).ok_or_else(|| odd("Image"))?)?
        };
        let commit = if self.committed {
            // Files that a person changed in the container are part of what runs.
            format!("{tool} commit --pause=false {own} {image} >/dev/null || exit 1\n")
        } else {
            String::new()
        };
        let mut given = Vec::new();
        let mut without = self.of_itself()?;
        for ask in self.variables {
            without = format!("{without} -e ^{}=", quote(&ask.switch)?);
            given.extend(match (&ask.value, tool) {
                (Some(value), _) => ["--env".into(), format!("{}={value}", ask.switch)],
                (None, "podman") => ["--unsetenv".into(), ask.switch.clone()],
                // What docker is told to take over and does not have itself, it takes away.
                (None, _) => ["--env".into(), ask.switch.clone()],
            });
        }
        given.extend(options(self.of)?);
        let unset: Vec<String> =
            self.variables.iter().filter(|a| a.value.is_none()).map(|a| a.switch.clone()).collect();
        let options: Result<Vec<String>, Failure> = given.iter().map(|o| quote(o)).collect();
        let words: Result<Vec<String>, Failure> = self.argv.iter().skip(1).map(|w| self.word(w)).collect();
        let program = self.argv.first().ok_or_else(|| Failure::new("the container has no program"))?;
        let mut lines = vec![format!("--name {name} --env-file \"$variables\"")];
        lines.extend(options?.chunks(2).map(|pair| pair.join(" ")));
        lines.push(format!("--entrypoint {} {image}", self.word(program)?));
        lines.extend(words?);
        Ok(format!(
            "own={own} copy={name}\n\
             {tool} container inspect --format '{{{{.Id}}}}' \"$copy\" >/dev/null 2>&1 && exit 0\n\
             {commit}\
             # The variables never leave the host: among them may be secrets.\n\
             umask 077; variables=$(mktemp) || exit 1; trap 'rm -f \"$variables\"' EXIT\n\
             {tool} container inspect --format '{{{{range .Config.Env}}}}{{{{println .}}}}{{{{end}}}}' \"$own\" | grep = | grep -v {without} >\"$variables\"\n\
             {}{tool} create {} >/dev/null || exit 1\n\
             echo \"copy $copy made\"",
            if unset.is_empty() { String::new() } else { format!("unset {}\n", unset.join(" ")) },
            lines.join(" \\\n  "),
        ))
    }

    /// The variables that the tool gives each container by itself.
    fn of_itself(&self) -> Result<String, Failure> {
        let own = text(self.of.at(&["Config", "Hostname"])).unwrap_or_default();
        let hostname = if self.of.variable("HOSTNAME").is_none_or(|h| h == own) { "-e ^HOSTNAME= " } else { "" };
        Ok(format!("{hostname}-e ^container="))
    }

    /// A word of the command; one that holds a secret is taken from the container on the host.
    fn word(&self, word: &str) -> Result<String, Failure> {
        let secret = redact::argv(self.argv) != self.argv && is_secret(self.argv, word);
        if !secret {
            return quote(word);
        }
        let place = self.of.argv.iter().position(|w| w == word).ok_or_else(|| {
            Failure::new("a word of the container's command holds a secret that cannot be taken over")
        })?;
        Ok(match place.checked_sub(1) {
            None => format!("\"$({} container inspect --format '{{{{.Path}}}}' \"$own\")\"", self.tool),
            Some(n) => format!("\"$({} container inspect --format '{{{{index .Args {n}}}}}' \"$own\")\"", self.tool),
        })
    }

    /// Whether the copy stands there and is the same but for its levels.
    pub(super) fn is_same(&self) -> Result<String, Failure> {
        let words: Result<Vec<String>, Failure> = self.argv.iter().map(|w| self.word(w)).collect();
        let mut switched = format!("grep -v {}", self.of_itself()?);
        let mut wanted = String::from(":");
        for ask in self.variables {
            let name = quote(&ask.switch)?;
            let given = format!("variables \"$copy\" | sed -n s/^{name}=//p");
            // A variable of the image that is taken away stands there as a name without a value.
            switched = format!("{switched} | grep -v -e ^{name}= -e ^{name}$");
            let test = match &ask.value {
                Some(value) => format!("[ \"$({given})\" = {} ]", quote(value)?),
                None => format!("[ -z \"$({given})\" ]"),
            };
            wanted = format!("{wanted}\n{test} || differs {name}");
        }
        Ok(format!(
            "tool={} own={} copy={}\nset -- {}\nswitched() {{ {switched}; }}\nwanted() {{ {wanted}\n}}\n{SAME}",
            self.tool,
            quote(&self.of.name)?,
            quote(self.name)?,
            words?.join(" "),
        ))
    }

    /// Takes the copy away.
    pub(super) fn remove(&self) -> Result<String, Failure> {
        remove(self.tool, &quote(self.name)?, self.committed.then(|| self.image()).as_deref())
    }
}

fn remove(tool: &str, name: &str, image: Option<&str>) -> Result<String, Failure> {
    let image = match image {
        Some(image) => format!("; {tool} image rm -f {} >/dev/null 2>&1 || :", quote(image)?),
        None => String::new(),
    };
    Ok(format!("{tool} rm -f {name} >/dev/null 2>&1 || ! {tool} container inspect {name} >/dev/null 2>&1{image}"))
}

/// Stops a container and waits until it is down.
pub(super) fn stop(tool: &str, name: &str) -> Result<String, Failure> {
    let name = quote(name)?;
    Ok(format!("{tool} stop {name} >/dev/null && echo 'stopped'"))
}

/// Starts a container.
pub(super) fn start(tool: &str, name: &str) -> Result<String, Failure> {
    Ok(format!("{tool} start {} >/dev/null && echo 'started'", quote(name)?))
}

/// Whether a container runs, or does not.
pub(super) fn runs(tool: &str, name: &str, wanted: bool) -> Result<String, Failure> {
    Ok(format!("[ \"$({tool} container inspect --format '{{{{.State.Running}}}}' {})\" = {wanted} ]", quote(name)?))
}

/// Whether a container runs and was started since `before`, which is when it was before this change.
pub(super) fn began(tool: &str, name: &str, before: &str) -> Result<String, Failure> {
    Ok(format!(
        "case $({tool} container inspect --format '{{{{.State.Running}}}} {{{{json .State.StartedAt}}}}' {name}) in\n\
         'true \"'{before}'\"') exit 1 ;; true*) ;; *) exit 1 ;; esac",
        name = quote(name)?,
        before = quote(before)?,
    ))
}

/// Takes every copy of a container away; the ends of their logs are kept in the folder `logs`.
pub(super) fn tidy(tool: &str, name: &str, logs: &str) -> Result<String, Failure> {
    let prefix = quote(&format!("{name}{}", super::probe::container::COPY))?;
    Ok(format!(
        "for copy in $({tool} ps --all --format '{{{{.Names}}}}'); do\n\
         \x20 case $copy in {prefix}*) ;; *) continue ;; esac\n\
         \x20 (umask 077; mkdir -p {logs} && {tool} logs --tail 20000 \"$copy\" >{logs}/\"$copy\".log 2>&1)\n\
         \x20 {tool} rm -f \"$copy\" >/dev/null || exit 1\n\
         \x20 {tool} image rm -f \"$(echo \"$copy\" | tr '[:upper:]' '[:lower:]')\" >/dev/null 2>&1\n\
         done; :",
        logs = quote(logs)?,
    ))
}

/// Puts a container back whatever was done to it: waits for steps that still run (`jobs`), takes our copies away, and
/// starts it where it ran.
pub(super) fn put_back(tool: &str, name: &str, jobs: &str, logs: &str, ran: bool) -> Result<String, Failure> {
    let own = quote(name)?;
    let again = if ran {
        format!("{}\n{} || exit 1\n", start(tool, name)?, runs(tool, name, true)?)
    } else {
        format!("{tool} stop {own} >/dev/null 2>&1\n")
    };
    Ok(format!(
        "{}\n{}\n\
         # Somebody may have taken the stopped container for litter: the copy is all there is then.\n\
         {tool} container inspect {own} >/dev/null 2>&1 || {{ echo 'the container itself is gone, so that its copy was left running' >&2; exit 1; }}\n\
         {}\n{again}rm -f {}*\necho 'put back'",
        super::shell_text::TICKS,
        wait_for_jobs(jobs)?,
        tidy(tool, name, logs)?,
        quote(jobs)?
    ))
}

fn text(value: &Value) -> Option<&str> {
    value.as_str().filter(|t| !t.is_empty())
}

fn odd(what: &str) -> Failure {
    Failure::new(format!("what the host says of the container's `{what}` is not understood"))
}

fn is_secret(argv: &[String], word: &str) -> bool {
    let clean = redact::argv(argv);
    argv.iter().zip(&clean).any(|(is, shown)| is == word && is != shown)
}

/// Flags of podman whose effect is in what is said of a container, and in the options of its copy.
const KNOWN: &[&str] = &[
    "-d",
    "--detach",
    "--name",
    "--network",
    "--net",
    "-v",
    "--volume",
    "-e",
    "--env",
    "--env-file",
    "-p",
    "--publish",
    "--restart",
    "-l",
    "--label",
    "-w",
    "--workdir",
    "-u",
    "--user",
    "--entrypoint",
    "--shm-size",
    "--ipc",
    "--pid",
    "--uts",
    "--ulimit",
    "--privileged",
    "--cap-add",
    "--cap-drop",
    "--security-opt",
    "--group-add",
    "--device",
    "-m",
    "--memory",
    "--cpus",
    "--cpuset-cpus",
    "--cpuset-mems",
    "-h",
    "--hostname",
    "--add-host",
    "--dns",
    "--tmpfs",
    "--log-driver",
    "--log-opt",
    "--stop-timeout",
    "--stop-signal",
    "-t",
    "--tty",
    "-i",
    "--interactive",
    "-it",
    "--read-only",
    "--replace",
    "--pull",
    "-P",
    "--publish-all",
    "--userns",
    "--network-alias",
    "--pids-limit",
    "-q",
];

/// Refuses a container that has something which neither an option of its copy nor the comparison would carry over.
///
/// # Errors
/// It has.
pub(super) fn check_can_copy(of: &Inspect) -> Result<(), Failure> {
    let refused = |what: &str| {
        Err(Failure::new(format!("the container {what}, which a copy of it would not have"))
            .hint("change its variable in what starts it, and restart it by hand"))
    };
    if of.env.iter().any(|one| one.contains(['\n', '\r'])) {
        return refused("has a variable of several lines");
    }
    if of.at(&["Config", "Secrets"]).as_array().is_some_and(|all| !all.is_empty()) {
        return refused("is given secrets by podman");
    }
    // What podman was told; the words after the image are the server's own.
    let told = of.at(&["Config", "CreateCommand"]).as_array().into_iter().flatten().filter_map(Value::as_str);
    let image = text(of.at(&["Config", "Image"])).unwrap_or_default();
    let options: Vec<&str> = told.skip(2).take_while(|w| !is_image(w, image)).collect();
    for option in options.iter().filter(|w| w.starts_with('-')) {
        let flag = option.split('=').next().unwrap_or(option);
        if !KNOWN.contains(&flag) {
            return refused(&format!("was made with `{flag}`"));
        }
    }
    if options
        .iter()
        .any(|w| w.ends_with(":O") || w.contains(":O,") || w.starts_with("nvidia.com/") || w.contains("=nvidia.com/"))
    {
        return refused("has an overlay or a card that podman injects");
    }
    Ok(())
}

/// Whether a word names this image, with or without its registry.
fn is_image(word: &str, image: &str) -> bool {
    !word.starts_with('-') && (word == image || image.ends_with(&format!("/{word}")))
}

/// The options of `create` that give a copy what a container has, a flag and its value each.
///
/// # Errors
/// It has something that no option gives.
fn options(of: &Inspect) -> Result<Vec<String>, Failure> {
    let mut out: Vec<String> = Vec::new();
    let mut say = |flag: &str, value: String| out.extend([flag.to_owned(), value]);
    let host = |key: &str| of.at(&["HostConfig", key]);
    let config = |key: &str| of.at(&["Config", key]);
    let (network, aliases) = network(of)?;
    say("--network", network.clone());
    for alias in aliases {
        say("--network-alias", alias);
    }
    for (key, flag) in [("IpcMode", "--ipc"), ("UsernsMode", "--userns"), ("CgroupParent", "--cgroup-parent")] {
        if let Some(value) = text(host(key)) {
            say(flag, value.to_owned());
        }
    }
    for (key, flag) in [("PidMode", "--pid"), ("UTSMode", "--uts"), ("CgroupnsMode", "--cgroupns")] {
        // `private` is what podman says where nobody asked.
        if let Some(value) = text(host(key)).filter(|v| *v != "private") {
            say(flag, value.to_owned());
        }
    }
    if let Some(runtime) = text(host("Runtime")).filter(|r| !matches!(*r, "runc" | "oci")) {
        say("--runtime", runtime.to_owned());
    }
    let numbers = [
        ("Memory", "--memory"),
        ("MemoryReservation", "--memory-reservation"),
        ("MemorySwap", "--memory-swap"),
        ("CpuShares", "--cpu-shares"),
        ("CpuPeriod", "--cpu-period"),
        ("CpuQuota", "--cpu-quota"),
        ("PidsLimit", "--pids-limit"),
        ("OomScoreAdj", "--oom-score-adj"),
    ];
    for (key, flag) in numbers {
        if let Some(value) = host(key).as_i64().filter(|v| *v != 0) {
            say(flag, value.to_string());
        }
    }
    if let Some(nanos) = host("NanoCpus").as_i64().filter(|v| *v != 0) {
        say("--cpus", format!("{}.{:09}", nanos / 1_000_000_000, nanos % 1_000_000_000));
    }
    if let Some(bytes) = host("ShmSize").as_u64().filter(|_| text(host("IpcMode")) != Some("host")) {
        say("--shm-size", format!("{bytes}b"));
    }
    for (key, flag) in [("CpusetCpus", "--cpuset-cpus"), ("CpusetMems", "--cpuset-mems")] {
        if let Some(value) = text(host(key)) {
            say(flag, value.to_owned());
        }
    }
    let lists = [
        ("CapAdd", "--cap-add"),
        ("CapDrop", "--cap-drop"),
        ("SecurityOpt", "--security-opt"),
        ("GroupAdd", "--group-add"),
        ("ExtraHosts", "--add-host"),
        ("Dns", "--dns"),
        ("DnsOptions", "--dns-option"),
        ("DnsSearch", "--dns-search"),
        ("DeviceCgroupRules", "--device-cgroup-rule"),
    ];
    for (key, flag) in lists {
        for one in host(key).as_array().into_iter().flatten() {
            say(flag, one.as_str().ok_or_else(|| odd(key))?.to_owned());
        }
    }
    for limit in host("Ulimits").as_array().into_iter().flatten() {
        let name = text(&limit["Name"]).ok_or_else(|| odd("Ulimits"))?.trim_start_matches("RLIMIT_").to_lowercase();
        let (soft, hard) = (&limit["Soft"], &limit["Hard"]);
        say("--ulimit", format!("{name}={soft}:{hard}"));
    }
    for device in host("Devices").as_array().into_iter().flatten() {
        let part = |key: &str| text(&device[key]).ok_or_else(|| odd("Devices"));
        let rights = text(&device["CgroupPermissions"]).map(|r| format!(":{r}")).unwrap_or_default();
        say("--device", format!("{}:{}{rights}", part("PathOnHost")?, part("PathInContainer")?));
    }
    for request in host("DeviceRequests").as_array().into_iter().flatten() {
        say("--gpus", gpus(request)?);
    }
    for (path, options) in host("Tmpfs").as_object().into_iter().flatten() {
        let options = text(options).map(|o| format!(":{o}")).unwrap_or_default();
        say("--tmpfs", format!("{path}{options}"));
    }
    if let Some(kind) = text(host("LogConfig").get("Type").unwrap_or(&Value::Null)) {
        say("--log-driver", kind.to_owned());
        for (key, value) in host("LogConfig")["Config"].as_object().into_iter().flatten() {
            say("--log-opt", open(key, value.as_str().ok_or_else(|| odd("LogConfig"))?)?);
        }
    }
    for (inner, outer) in host("PortBindings").as_object().into_iter().flatten() {
        for binding in outer.as_array().into_iter().flatten() {
            let address = text(&binding["HostIp"]).map(|a| format!("{a}:")).unwrap_or_default();
            let port = text(&binding["HostPort"]).unwrap_or_default();
            say("--publish", format!("{address}{port}:{inner}"));
        }
    }
    for mount in of.at(&["Mounts"]).as_array().into_iter().flatten() {
        say("--volume", mount_text(mount)?);
    }
    for (key, flag) in [("User", "--user"), ("WorkingDir", "--workdir")] {
        if let Some(value) = text(config(key)) {
            say(flag, value.to_owned());
        }
    }
    if let Some(name) = text(config("Hostname")).filter(|n| network != "host" && !of.id.starts_with(*n)) {
        say("--hostname", name.to_owned());
    }
    if let Some(seconds) = config("StopTimeout").as_u64() {
        say("--stop-timeout", seconds.to_string());
    }
    if let Some(signal) =
        config("StopSignal").as_u64().map(|n| n.to_string()).or_else(|| text(config("StopSignal")).map(str::to_owned))
    {
        say("--stop-signal", signal);
    }
    for (key, value) in config("Labels").as_object().into_iter().flatten() {
        // Who looks after the container by its labels must not look after the copy.
        if !key.starts_with("com.docker.compose.") && !key.starts_with("io.podman.") {
            say("--label", open(key, value.as_str().ok_or_else(|| odd("Labels"))?)?);
        }
    }
    let switches = [
        (host("Privileged"), "--privileged"),
        (host("ReadonlyRootfs"), "--read-only"),
        (host("PublishAllPorts"), "--publish-all"),
        (host("Init"), "--init"),
        (config("Tty"), "--tty"),
        (config("OpenStdin"), "--interactive"),
        (host("OomKillDisable"), "--oom-kill-disable"),
    ];
    out.extend(
        switches.iter().filter(|(value, _)| value.as_bool() == Some(true)).map(|(_, flag)| format!("{flag}=true")),
    );
    Ok(out)
}

/// A setting that is written into the command; one that is a secret is not.
fn open(key: &str, value: &str) -> Result<String, Failure> {
    let whole = format!("{key}={value}");
    if redact::is_secret_name(key) || redact::text(&whole) != whole {
        let message =
            format!("the container's setting `{key}` is a secret, which would have to be written into a command");
        return Err(Failure::new(message).hint("give the secret as a variable, a file or a mount"));
    }
    Ok(whole)
}

/// The network of a container and the names that it has there.
///
/// # Errors
/// It has a fixed address, or is on several networks.
fn network(of: &Inspect) -> Result<(String, Vec<String>), Failure> {
    let mode = text(of.at(&["HostConfig", "NetworkMode"])).unwrap_or("default").to_owned();
    let none = serde_json::Map::new();
    let networks = of.at(&["NetworkSettings", "Networks"]).as_object().unwrap_or(&none);
    if matches!(mode.as_str(), "host" | "none") || mode.starts_with("container:") || networks.is_empty() {
        return Ok((mode, Vec::new()));
    }
    let refused = |what: &str| {
        Failure::new(format!("the container {what}, which a copy of it would not have"))
            .hint("change its variable in what starts it, and restart it by hand")
    };
    let mut all = networks.iter();
    let (Some((name, settings)), None) = (all.next(), all.next()) else {
        return Err(refused("is on several networks"));
    };
    let fixed = |key: &str| text(&settings["IPAMConfig"][key]).is_some();
    if fixed("IPv4Address") || fixed("IPv6Address") || text(of.at(&["Config", "MacAddress"])).is_some() {
        return Err(refused("has an address of its own"));
    }
    if matches!(name.as_str(), "bridge" | "podman") {
        return Ok((mode, Vec::new()));
    }
    // Others find it by its name, which the copy does not have itself.
    let mut aliases = vec![of.name.clone()];
    let given = settings["Aliases"].as_array().into_iter().flatten().filter_map(Value::as_str);
    aliases.extend(given.filter(|a| !of.id.starts_with(*a) && *a != of.name).map(str::to_owned));
    Ok((name.clone(), aliases))
}

/// The cards that a container was given.
fn gpus(request: &Value) -> Result<String, Failure> {
    let words =
        |key: &str| -> Vec<&str> { request[key].as_array().into_iter().flatten().filter_map(Value::as_str).collect() };
    let ids = words("DeviceIDs");
    let count = request["Count"].as_i64().unwrap_or(0);
    let which = match (&ids[..], count) {
        ([], -1) => "all".to_owned(),
        ([], n) if n > 0 => n.to_string(),
        ([_, ..], 0) => format!("\"device={}\"", ids.join(",")),
        _ => return Err(odd("DeviceRequests")),
    };
    let driver = text(&request["Driver"]);
    let capabilities: Vec<Vec<&str>> = request["Capabilities"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|group| group.as_array().into_iter().flatten().filter_map(Value::as_str).collect())
        .collect();
    let plain =
        driver.is_none() && matches!(&capabilities[..], [] | [_] if capabilities.iter().all(|c| c[..] == ["gpu"]));
    if plain {
        return Ok(which);
    }
    let [group] = &capabilities[..] else { return Err(odd("DeviceRequests")) };
    let which = if ids.is_empty() { format!("count={which}") } else { which };
    let driver = driver.map(|d| format!(",driver={d}")).unwrap_or_default();
    Ok(format!("{which}{driver},\"capabilities={}\"", group.join(",")))
}

/// A mount as `--volume` takes it.
fn mount_text(mount: &Value) -> Result<String, Failure> {
    let kind = text(&mount["Type"]).ok_or_else(|| odd("Mounts"))?;
    let source = match kind {
        "bind" => text(&mount["Source"]),
        "volume" => text(&mount["Name"]),
        other => {
            return Err(Failure::new(format!(
                "the container has a mount of the kind `{other}`, which a copy would not have"
            ))
            .hint("change its variable in what starts it, and restart it by hand"));
        }
    };
    let (Some(source), Some(target)) = (source, text(&mount["Destination"])) else { return Err(odd("Mounts")) };
    if source.contains(':') || target.contains(':') {
        return Err(Failure::new("a mount of the container has a colon in its path, which an option cannot say"));
    }
    let mut options = vec![if mount["RW"].as_bool() == Some(false) { "ro" } else { "rw" }];
    options.extend(text(&mount["Propagation"]).filter(|p| kind == "bind" && *p != "rprivate"));
    Ok(format!("{source}:{target}:{}", options.join(",")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::remote::probe::container::read_inspect;

    fn ask(switch: &str, value: Option<&str>) -> Ask {
        Ask { switch: switch.into(), value: value.map(str::to_owned), takes_value: true }
    }

    fn made(text: &str, tool: &str, argv: &[&str], asks: &[Ask]) -> Result<String, Failure> {
        let own = read_inspect(text).unwrap();
        let argv: Vec<String> =
            if argv.is_empty() { own.argv.clone() } else { argv.iter().map(|w| (*w).to_owned()).collect() };
        let variables: Vec<&Ask> = asks.iter().collect();
        let copy =
            Copy { tool, of: &own, name: "t1.patchbench-1", argv: &argv, variables: &variables, committed: false };
        copy.make()
    }

    const DOCKER: &str = include_str!("probe/testdata/docker-inspect.json");
    const PODMAN: &str = include_str!("probe/testdata/podman-inspect.json");

    #[test]
    fn a_copy_is_made_with_what_the_container_was_made_with() {
        let asks = [ask("A", Some("2 3")), ask("B", None)];
        insta::assert_snapshot!(made(DOCKER, "docker", &[], &asks).unwrap(), @r###"
own=t1 copy=t1.patchbench-1
docker container inspect --format '{{.Id}}' "$copy" >/dev/null 2>&1 && exit 0
# The variables never leave the host: among them may be secrets.
umask 077; variables=$(mktemp) || exit 1; trap 'rm -f "$variables"' EXIT
docker container inspect --format '{{range .Config.Env}}{{println .}}{{end}}' "$own" | grep = | grep -v -e ^HOSTNAME= -e ^container= -e ^A= -e ^B= >"$variables"
unset B
docker create --name t1.patchbench-1 --env-file "$variables" \
  --env 'A=2 3' \
  --env B \
  --network host \
  --ipc private \
  --cgroupns host \
  --shm-size 67108864b \
  --log-driver json-file \
  --volume /srv/m:/m:ro \
  --volume cache1:/root/.cache:rw \
  --workdir /m \
  --stop-timeout 7 \
  --label 'a=b' \
  --entrypoint bash sha256:b433d28c14e21bd9b0dd718b697478d3df884dc10b1ee5ce984d79c2c36cae15 \
  -c \
  'trap "exit 0" TERM; while :; do sleep 1; done' >/dev/null || exit 1
echo "copy $copy made"
"###);
        insta::assert_snapshot!(made(PODMAN, "podman", &[], &asks).unwrap(), @r###"
own=t1 copy=t1.patchbench-1
podman container inspect --format '{{.Id}}' "$copy" >/dev/null 2>&1 && exit 0
# The variables never leave the host: among them may be secrets.
umask 077; variables=$(mktemp) || exit 1; trap 'rm -f "$variables"' EXIT
podman container inspect --format '{{range .Config.Env}}{{println .}}{{end}}' "$own" | grep = | grep -v -e ^HOSTNAME= -e ^container= -e ^A= -e ^B= >"$variables"
unset B
podman create --name t1.patchbench-1 --env-file "$variables" \
  --env 'A=2 3' \
  --unsetenv B \
  --network host \
  --ipc shareable \
  --pids-limit 2048 \
  --shm-size 67108864b \
  --ulimit 'nofile=1024:20000' \
  --ulimit 'nproc=1000:5000' \
  --log-driver k8s-file \
  --volume cache1:/root/.cache:rw \
  --volume /srv/m:/m:ro \
  --workdir /m \
  --stop-timeout 7 \
  --stop-signal 15 \
  --label 'a=b' \
  --entrypoint bash b1b70c8937df10b2ccf272c2101f761573b5cb4748863ab4687be3c0e7e163bb \
  -c \
  'trap "exit 0" TERM; while :; do sleep 1; done' >/dev/null || exit 1
echo "copy $copy made"
"###);
    }

    #[test]
    fn a_secret_of_the_command_stays_on_the_host() {
        let text = DOCKER
            .replace("trap \\\"exit 0\\\" TERM; while :; do sleep 1; done", "sk-planted0123456789abcdef")
            .replace("\"-c\"", "\"--api-key\"");
        let own = read_inspect(&text).unwrap();
        assert_eq!(own.argv, ["bash", "--api-key", "sk-planted0123456789abcdef"]);
        let text = made(&text, "docker", &[], &[ask("A", Some("1"))]).unwrap();
        assert!(!text.contains("planted") && text.contains("{{index .Args 1}}"), "{text}");
    }

    #[test]
    fn what_no_option_gives_is_refused() {
        for (from, to, part) in [
            ("\"Type\": \"bind\"", "\"Type\": \"npipe\"", "a mount of the kind `npipe`"),
            ("\"Source\": \"/srv/m\"", "\"Source\": \"/srv/a:b\"", "a colon in its path"),
            ("\"DeviceRequests\": null", "\"DeviceRequests\": [{\"Count\": -2}]", "`DeviceRequests` is not understood"),
        ] {
            assert!(DOCKER.contains(from), "{from}");
            let failure = made(&DOCKER.replace(from, to), "docker", &[], &[ask("A", Some("1"))]).unwrap_err();
            assert!(failure.message.contains(part), "{part}: {}", failure.message);
        }
    }

    #[test]
    fn cards_are_asked_for_as_they_were() {
        for (text, expect) in [
            (r#"{"Count": -1, "DeviceIDs": null}"#, "all"),
            (r#"{"Count": 4}"#, "4"),
            (r#"{"Count": 0, "DeviceIDs": ["0", "3"]}"#, "\"device=0,3\""),
        ] {
            assert_eq!(gpus(&serde_json::from_str(text).unwrap()).unwrap(), expect);
        }
    }
}
