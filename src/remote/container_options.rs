//! What a container was made with as the options of `create` that make a copy of it, and what no option gives. Pure.
//!
//! Not responsible for running anything; see `container_text`.

use serde_json::Value;

use super::probe::container::Inspect;
use crate::engine::procedure::Failure;
use crate::redact;

/// A text that is there and not empty.
pub(super) fn text(value: &Value) -> Option<&str> {
    value.as_str().filter(|t| !t.is_empty())
}

/// What is said of a container and not understood.
pub(super) fn odd(what: &str) -> Failure {
    Failure::new(format!("what the host says of the container's `{what}` is not understood"))
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
pub(super) fn options(of: &Inspect) -> Result<Vec<String>, Failure> {
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

    const DOCKER: &str = include_str!("probe/testdata/docker-inspect.json");

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

    fn networks(mode: &str, networks: &str) -> Result<(String, Vec<String>), Failure> {
        let mut own = read_inspect(DOCKER).unwrap();
        own.all["HostConfig"]["NetworkMode"] = mode.into();
        own.all["NetworkSettings"]["Networks"] = serde_json::from_str(networks).unwrap();
        network(&own)
    }

    #[test]
    fn a_copy_is_found_by_the_names_of_its_container_or_not_made() {
        let id = read_inspect(DOCKER).unwrap().id;
        let net = |settings: &str| format!("{{\"front\": {settings}}}");
        let aliases = format!("{{\"Aliases\": [\"decode\", \"t1\", \"{}\"], \"IPAMConfig\": null}}", &id[..12]);
        let (name, names) = networks("front", &net(&aliases)).unwrap();
        assert_eq!((name.as_str(), names), ("front", vec!["t1".to_owned(), "decode".to_owned()]));
        assert_eq!(networks("host", "{}").unwrap(), ("host".to_owned(), Vec::new()));
        assert_eq!(networks("default", "{\"bridge\": {}}").unwrap(), ("default".to_owned(), Vec::new()));
        let fixed = networks("front", &net("{\"IPAMConfig\": {\"IPv4Address\": \"10.0.0.7\"}}")).unwrap_err();
        assert!(fixed.message.contains("an address of its own"), "{}", fixed.message);
        let two = networks("front", "{\"a\": {}, \"b\": {}}").unwrap_err();
        assert!(two.message.contains("several networks"), "{}", two.message);
    }

    #[test]
    fn a_secret_among_labels_and_log_options_is_not_written_into_a_command() {
        for (key, value, good) in [
            ("owner", "ann", true),
            ("splunk-token", "abc", false),
            ("note", "Authorization: Bearer abcdefghijklmnopqrstuvwxyz012345", false),
        ] {
            assert_eq!(open(key, value).is_ok(), good, "{key}={value}");
        }
    }
}
