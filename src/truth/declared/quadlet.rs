//! Quadlets: `.container` files, from which systemd's generator makes units that run podman. Pure.

use super::command::{Reading, set};
use super::container::Container;
use super::systemd::{self, syntax, syntax::Assignment};
use super::words::PlacedWord;
use super::{Declared, FileText, Files, Place, Setting, Text, remark, remarks};

/// Reads a `.container` file with its drop-ins, which are applied in the order given.
pub fn read(
    name: &str,
    main: (&str, &str),
    drop_ins: &[(String, String)],
    files: &Files,
    port: Option<u16>,
) -> Container {
    let mut out = Container::new(Place::new(main.0, 1));
    let mut settings = syntax::read(main.1, main.0, &mut out.declared);
    for (path, text) in drop_ins {
        settings.extend(syntax::read(text, path, &mut out.declared));
    }
    let settings: Vec<Assignment> = settings.into_iter().filter(|a| a.section == "Container").collect();
    let all = |key: &str| -> Vec<&Assignment> {
        let found: Vec<&Assignment> = settings.iter().filter(|a| a.key == key).collect();
        let from = found.iter().rposition(|a| a.value.text.is_empty()).map_or(0, |i| i + 1);
        found[from..].to_vec()
    };
    let last = |key: &str| all(key).last().map(|a| setting(a, name));
    out.image = last("Image");
    out.name = last("ContainerName");
    out.entrypoint = last("Entrypoint");
    out.network = last("Network");
    out.gpus = last("AddDevice");
    out.ports = all("PublishPort").into_iter().map(|a| setting(a, name)).collect();
    if out.image.is_none() {
        out.declared.diagnostics.push(remark("no-image", "this file names no image", &out.place));
    }
    for a in all("EnvironmentFile") {
        env_file(&mut out.declared, a, name, files);
    }
    for a in all("Environment") {
        systemd::environment_lines(&mut out.declared, &a.value, &a.file, name);
    }
    let words = |out: &mut Declared, a: &Assignment| systemd::command_words(&a.value, &a.file, name, out);
    let mut entrypoint = Vec::new();
    if let Some(entry) = &out.entrypoint {
        entrypoint.push(PlacedWord::new(entry.value.clone(), entry.place.clone()));
    }
    let arguments = all("Exec").last().map(|a| words(&mut out.declared, a)).unwrap_or_default();
    for a in all("PodmanArgs") {
        podman_arguments(&mut out, &words(&mut Declared::default(), a));
    }
    out.command(entrypoint, arguments, Reading::new(port, files));
    remarks::add(&mut out.declared, out.image.as_ref().and_then(|i| i.value.known()));
    out
}

fn setting(a: &Assignment, unit: &str) -> Setting {
    Setting { value: systemd::with_specifiers(&a.value.text, unit), place: a.place() }
}

fn env_file(out: &mut Declared, a: &Assignment, unit: &str, files: &Files) {
    let path = systemd::with_specifiers(&a.value.text, unit);
    let text = path.known().map(|p| (p.to_owned(), files.get(p)));
    match text {
        // The generator passes it to podman, so that podman's rules count and not systemd's.
        Some((path, FileText::Read(text))) => super::docker::env_file_text(out, &Declared::default(), &path, &text),
        Some((path, FileText::Absent)) => {
            out.diagnostics.push(remark(
                "env-file",
                &format!("`{path}` does not exist: the container does not start"),
                &a.place(),
            ));
        }
        Some((path, FileText::Unread(why))) => {
            out.diagnostics.push(remark("env-file", &why, &a.place()));
            out.blind(&format!("what `{path}` sets"));
        }
        None => out.blind("what a file of variables sets"),
    }
}

/// `PodmanArgs=`: options that are passed as they are; of these, variables count.
fn podman_arguments(out: &mut Container, words: &[PlacedWord]) {
    for (i, word) in words.iter().enumerate() {
        let Some(text) = word.known() else { continue };
        let joined = text.strip_prefix("--env=").or_else(|| text.strip_prefix("-e").filter(|v| !v.is_empty()));
        if let Some(value) = joined {
            set(&mut out.declared, &Declared::default(), &Text::Known(value.to_owned()), word.place.clone(), "podman");
        } else if let (true, Some(next)) = (matches!(text, "-e" | "--env"), words.get(i + 1)) {
            set(&mut out.declared, &Declared::default(), &next.text, next.place.clone(), "podman");
        } else if let Some(value) = text.strip_prefix("--gpus=") {
            out.gpus = Some(Setting { value: Text::Known(value.to_owned()), place: word.place.clone() });
        } else if text.starts_with("--env-file") {
            out.declared.blind("what a file of variables sets");
        }
    }
}
