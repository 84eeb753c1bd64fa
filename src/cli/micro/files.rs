//! Figures and tables of microtests as files.
//!
//! Responsible for which file holds what, and that no file is half-written. Not responsible for what stands in it.

use std::io::Write as _;
use std::path::{Path, PathBuf};

use crate::cli::answer::Failed;
use crate::cli::json::ErrorCode;
use crate::engine::procedure::Failure;
use crate::kernel::figure::pictures;
use crate::kernel::report::MicroReport;
use crate::report::csv;
use crate::report::plot::{PlotError, Sheet, png, svg};

/// Where something is written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// All of one microtest on one sheet.
    Sheet(Format, PathBuf),
    /// One file for each picture, in both formats.
    Folder(PathBuf),
    /// Every point of every curve.
    Csv(PathBuf),
}

/// Format of a picture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// Lines and texts.
    Svg,
    /// Pixels.
    Png,
}

impl Format {
    const ALL: [Self; 2] = [Self::Svg, Self::Png];

    fn ending(self) -> &'static str {
        match self {
            Self::Svg => "svg",
            Self::Png => "png",
        }
    }

    fn draw(self, sheet: &Sheet) -> Result<Vec<u8>, PlotError> {
        match self {
            Self::Svg => svg(sheet).map(String::into_bytes),
            Self::Png => png(sheet),
        }
    }
}

/// What the options ask for, before anything is measured. `specs` is the number of microtests that will run.
///
/// A path with another ending than `.svg` and `.png` is refused; one without an ending, or that is a folder, is one.
///
/// # Errors
/// An ending is unknown, a sheet is asked for of several microtests, or the folder of a file does not exist.
pub fn targets(figures: &[PathBuf], csv: Option<&Path>, specs: usize) -> Result<Vec<Target>, Failed> {
    let mut out = Vec::new();
    for path in figures {
        let ending = path.extension().map(|e| e.to_string_lossy().to_lowercase());
        let format = Format::ALL.into_iter().find(|f| ending.as_deref() == Some(f.ending()));
        let target = match (format, ending) {
            _ if path.is_dir() => Target::Folder(path.clone()),
            (Some(_), _) if specs > 1 => {
                let message = format!("`{}` holds one microtest, and {specs} are asked for", path.display());
                return Err(usage(message).hint("name one microtest, or give a folder"));
            }
            (Some(format), _) => Target::Sheet(format, path.clone()),
            (None, None) => Target::Folder(path.clone()),
            (None, Some(_)) => {
                let message = format!("a figure ends in `.svg` or `.png`, which `{}` does not", path.display());
                return Err(usage(message).hint("a path without an ending is a folder for one file a picture"));
            }
        };
        out.push(target);
    }
    if let Some(path) = csv {
        if path.is_dir() {
            return Err(usage(format!("`{}` is a folder, and `--csv` writes one file", path.display())));
        }
        out.push(Target::Csv(path.to_owned()));
    }
    for target in &out {
        if let Target::Sheet(_, path) | Target::Csv(path) = target
            && !folder_of(path).is_dir()
        {
            let message = format!("`{}` cannot be written: its folder does not exist", path.display());
            return Err(usage(message).hint(format!("make `{}` first", folder_of(path).display())));
        }
    }
    Ok(out)
}

fn usage(message: String) -> Failed {
    Failed::usage(ErrorCode::Usage, message)
}

/// Writes the files; returns their paths in the order in which they were written.
///
/// # Errors
/// There is nothing to draw, or a file cannot be written; files that were written before stay.
pub fn write(targets: &[Target], reports: &[MicroReport]) -> Result<Vec<PathBuf>, Failure> {
    let mut written = Vec::new();
    for target in targets {
        match target {
            Target::Sheet(format, path) => {
                let report = reports.first().ok_or_else(|| Failure::new("there is no report to draw"))?;
                save(path, &drawn(*format, &Sheet::of(report), path)?)?;
                written.push(path.clone());
            }
            Target::Folder(folder) => {
                fs_err::create_dir_all(folder).map_err(|e| Failure::new(e.to_string()))?;
                for report in reports {
                    written.extend(write_all(folder, report)?);
                }
            }
            Target::Csv(path) => {
                let mut bytes = Vec::new();
                csv::write(reports, &mut bytes).map_err(|e| unwritten(path, &e))?;
                save(path, &bytes)?;
                written.push(path.clone());
            }
        }
    }
    Ok(written)
}

/// The sheet and each picture of a report: `SPEC-DEVICE.svg`, `SPEC-DEVICE-per-site.svg`, ….
fn write_all(folder: &Path, report: &MicroReport) -> Result<Vec<PathBuf>, Failure> {
    let device = report.device.replace(|c: char| !c.is_ascii_alphanumeric(), "-");
    let stem = format!("{}-{device}", report.spec);
    let whole = std::iter::once((stem.clone(), Sheet::of(report)));
    let single = pictures(report).into_iter().map(|p| {
        let name = format!("{stem}-{}", p.file_stem());
        (name, Sheet::with(report, vec![p]))
    });
    let mut written = Vec::new();
    for (name, sheet) in whole.chain(single) {
        for format in Format::ALL {
            let path = folder.join(format!("{name}.{}", format.ending()));
            save(&path, &drawn(format, &sheet, &path)?)?;
            written.push(path);
        }
    }
    Ok(written)
}

fn drawn(format: Format, sheet: &Sheet, path: &Path) -> Result<Vec<u8>, Failure> {
    format.draw(sheet).map_err(|e| Failure::new(format!("`{}` is not written: {e}", path.display())))
}

/// Writes a file beside its place and then moves it there, so that it is whole or not there.
fn save(path: &Path, bytes: &[u8]) -> Result<(), Failure> {
    let write = || -> std::io::Result<()> {
        let mut builder = tempfile::Builder::new();
        #[cfg(unix)]
        builder.permissions(std::os::unix::fs::PermissionsExt::from_mode(0o666));
        let mut file = builder.prefix(".patchbench-").tempfile_in(folder_of(path))?;
        file.write_all(bytes)?;
        file.as_file().sync_all()?;
        file.persist(path)?;
        Ok(())
    };
    write().map_err(|e| unwritten(path, &e))
}

fn unwritten(path: &Path, error: &std::io::Error) -> Failure {
    Failure::new(format!("`{}` cannot be written: {error}", path.display()))
}

fn folder_of(path: &Path) -> &Path {
    match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::figure::sample;

    fn refused(figures: &[&str], csv: Option<&str>, specs: usize) -> String {
        let figures: Vec<PathBuf> = figures.iter().map(PathBuf::from).collect();
        targets(&figures, csv.map(Path::new), specs).unwrap_err().error.message
    }

    #[test]
    fn what_cannot_be_written_is_refused_before_anything_is_measured() {
        assert_eq!(refused(&["a.pdf"], None, 1), "a figure ends in `.svg` or `.png`, which `a.pdf` does not");
        assert_eq!(refused(&["a.svg"], None, 2), "`a.svg` holds one microtest, and 2 are asked for");
        assert_eq!(
            refused(&["nowhere/a.png"], None, 1),
            "`nowhere/a.png` cannot be written: its folder does not exist"
        );
        assert_eq!(refused(&[], Some("src"), 1), "`src` is a folder, and `--csv` writes one file");
    }

    #[test]
    fn a_path_says_what_it_holds() {
        let check = |path: &str, expect: Target| assert_eq!(targets(&[path.into()], None, 1).unwrap(), [expect]);
        check("a.svg", Target::Sheet(Format::Svg, "a.svg".into()));
        check("a.b.PNG", Target::Sheet(Format::Png, "a.b.PNG".into()));
        check("figures", Target::Folder("figures".into()));
        check("src", Target::Folder("src".into()));
    }

    #[test]
    fn every_picture_is_written_in_both_formats_and_nothing_else_is_left() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        let all =
            [Target::Folder(at("figures")), Target::Sheet(Format::Png, at("one.png")), Target::Csv(at("points.csv"))];
        let written = write(&all, &[sample::report()]).unwrap();
        assert_eq!(written.len(), 2 * 8 + 2);
        assert!(written.contains(&at("figures/mhc-mix-cpu-heat-bf16.svg")), "{written:?}");
        assert!(written.contains(&at("figures/mhc-mix-cpu.png")));
        assert!(fs_err::read(at("one.png")).unwrap().starts_with(b"\x89PNG\r\n\x1a\n"));
        assert!(fs_err::read_to_string(at("figures/mhc-mix-cpu-per-site.svg")).unwrap().starts_with("<svg "));
        assert_eq!(fs_err::read_dir(at("figures")).unwrap().count(), 16);
        assert_eq!(fs_err::read_dir(dir.path()).unwrap().count(), 3);
    }

    #[test]
    fn a_file_that_is_there_is_replaced_whole_or_stays() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.svg");
        fs_err::write(&path, "old").unwrap();
        let target = [Target::Sheet(Format::Svg, path.clone())];
        let failure = write(&target, &[MicroReport::default()]).unwrap_err();
        assert!(failure.message.contains("no curve that could be drawn"), "{}", failure.message);
        assert_eq!(fs_err::read_to_string(&path).unwrap(), "old");
        write(&target, &[sample::report()]).unwrap();
        assert!(fs_err::read_to_string(&path).unwrap().ends_with("</svg>\n"));
        assert_eq!(fs_err::read_dir(dir.path()).unwrap().count(), 1);
    }
}
