//! Which drop-ins of a unit count, and in which order. Pure.

/// Folders of unit files from the strongest to the weakest; `systemd.unit` has the list.
const FOLDERS: &[&str] = &[
    "/etc/systemd/system.control/",
    "/run/systemd/system.control/",
    "/run/systemd/transient/",
    "/run/systemd/generator.early/",
    "/etc/systemd/system/",
    "/etc/systemd/system.attached/",
    "/run/systemd/system/",
    "/run/systemd/system.attached/",
    "/run/systemd/generator/",
    "/usr/local/lib/systemd/system/",
    "/usr/lib/systemd/system/",
    "/lib/systemd/system/",
    "/run/systemd/generator.late/",
    "/.config/systemd/user.control/",
    "/.config/systemd/user/",
    "/etc/systemd/user/",
    "/run/systemd/user/",
    "/.local/share/systemd/user/",
    "/usr/lib/systemd/user/",
];

/// How weak the folder of a path is.
fn rank(path: &str) -> usize {
    let found = FOLDERS.iter().position(|f| path.starts_with(f) || (f.starts_with("/.") && path.contains(f)));
    found.unwrap_or_else(|| match path {
        p if p.starts_with("/etc/") => 4,
        p if p.starts_with("/run/") => 6,
        _ => FOLDERS.len(),
    })
}

/// How far the folder's name is from the unit's own: `a-b.service.d`, `a-.service.d`, `service.d`.
fn generality(path: &str, unit: &str) -> usize {
    let folder = path.rsplit('/').nth(1).unwrap_or_default().trim_end_matches(".d");
    if folder == unit {
        return 0;
    }
    let (stem, suffix) = unit.rsplit_once('.').unwrap_or((unit, "service"));
    match folder.strip_suffix(suffix).map(|f| f.trim_end_matches('.')) {
        Some("") => stem.len() + 1,
        Some(prefix) => 1 + stem.len().saturating_sub(prefix.len()),
        None => 0,
    }
}

/// Whether a file of such a folder is read at all.
pub(super) fn is_drop_in(path: &str) -> bool {
    file_name(path).rsplit_once('.').is_some_and(|(_, suffix)| suffix == "conf")
}

/// File name of a path.
pub(super) fn file_name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

/// The drop-ins that count, in the order in which they are read: by file name over all folders; of files with one
/// name, only that of the strongest folder.
pub(super) fn order<'f>(unit: &str, files: &'f [(String, String)]) -> (Vec<&'f (String, String)>, Vec<&'f str>) {
    let mut sorted: Vec<&(String, String)> = files.iter().filter(|(p, _)| is_drop_in(p)).collect();
    sorted.sort_by_key(|(p, _)| (file_name(p), generality(p, unit), rank(p)));
    let mut count: Vec<&(String, String)> = Vec::new();
    let mut shadowed = Vec::new();
    for file in sorted {
        match count.last() {
            Some(last) if file_name(&last.0) == file_name(&file.0) => shadowed.push(file.0.as_str()),
            _ => count.push(file),
        }
    }
    shadowed.extend(files.iter().map(|(p, _)| p.as_str()).filter(|p| !is_drop_in(p)));
    (count, shadowed)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(unit: &str, files: &[&str], expect: &[&str]) {
        let files: Vec<(String, String)> = files.iter().map(|f| ((*f).to_owned(), String::new())).collect();
        let (order, _) = order(unit, &files);
        assert_eq!(order.iter().map(|(p, _)| p.as_str()).collect::<Vec<_>>(), expect);
    }

    #[test]
    fn by_name_over_all_folders_and_the_strongest_of_one_name() {
        let etc = "/etc/systemd/system/a-b.service.d/20.conf";
        let run = "/run/systemd/system/a-b.service.d/10.conf";
        let usr = "/usr/lib/systemd/system/a-b.service.d/20.conf";
        check("a-b.service", &[usr, etc, run], &[run, etc]);
        check(
            "a-b.service",
            &["/run/systemd/system/a-b.service.d/20.conf", usr],
            &["/run/systemd/system/a-b.service.d/20.conf"],
        );
        let control = "/etc/systemd/system.control/a-b.service.d/20.conf";
        check("a-b.service", &[etc, control], &[control]);
        // The unit's own folder beats that of its prefix, which beats that of its type.
        let own = "/usr/lib/systemd/system/a-b.service.d/x.conf";
        let prefix = "/etc/systemd/system/a-.service.d/x.conf";
        let kind = "/etc/systemd/system/service.d/x.conf";
        check("a-b.service", &[kind, prefix, own], &[own]);
        check("a-b.service", &[kind, prefix], &[prefix]);
        check("a-b.service", &["/etc/systemd/system/a-b.service.d/note.txt"], &[]);
    }
}
