//! The POSIX shell texts of a change of a container: a copy of it with other levels takes its place, and it stays as it
//! is. Pure: each text is shown, journaled and run exactly as built here.
//!
//! A container cannot be given another variable, so that a copy is made from what the host says of it. Whether the copy
//! is the same but for its levels is proven on the host before anything is stopped.

use super::container_options::{check_can_copy, odd, options, text};
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
        let mut without = self.of_itself();
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
    fn of_itself(&self) -> String {
        let own = text(self.of.at(&["Config", "Hostname"])).unwrap_or_default();
        let hostname = if self.of.variable("HOSTNAME").is_none_or(|h| h == own) { "-e ^HOSTNAME= " } else { "" };
        format!("{hostname}-e ^container=")
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
        let mut switched = format!("grep -v {}", self.of_itself());
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
        let (tool, name) = (self.tool, quote(self.name)?);
        let image = if self.committed {
            format!("; {tool} image rm -f {} >/dev/null 2>&1 || :", quote(&self.image())?)
        } else {
            String::new()
        };
        Ok(format!("{tool} rm -f {name} >/dev/null 2>&1 || ! {tool} container inspect {name} >/dev/null 2>&1{image}"))
    }
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

fn is_secret(argv: &[String], word: &str) -> bool {
    let clean = redact::argv(argv);
    argv.iter().zip(&clean).any(|(is, shown)| is == word && is != shown)
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
    fn what_neither_option_nor_comparison_would_carry_over_is_refused() {
        for (name, text, from, to, part) in [
            ("docker", DOCKER, "\"B=x y\"", "\"B=x\\ny\"", "a variable of several lines"),
            ("docker", DOCKER, "\"Env\": [", "\"Secrets\": [{\"Name\": \"k\"}], \"Env\": [", "secrets by podman"),
            ("podman", PODMAN, "\"--shm-size\"", "\"--init\"", "`--init`"),
            ("podman", PODMAN, "\"--shm-size\"", "\"--health-cmd=true\"", "`--health-cmd`"),
            ("podman", PODMAN, "\"/srv/m:/m:ro\",\n    \"-v\"", "\"/srv/m:/m:O\",\n    \"-v\"", "an overlay"),
        ] {
            assert!(text.contains(from), "{name}: {from}");
            let failure = made(&text.replacen(from, to, 1), name, &[], &[ask("A", Some("1"))]).unwrap_err();
            assert!(failure.message.contains(part) && failure.hint.is_some(), "{part}: {}", failure.message);
        }
        for text in [DOCKER, PODMAN] {
            check_can_copy(&read_inspect(text).unwrap()).unwrap();
        }
    }
}
