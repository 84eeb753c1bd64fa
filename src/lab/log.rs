//! The lab server's log: `SGLang`'s line form, on standard output.

use std::io::Write as _;

/// Writes one line with the time in front. A closed output loses the line, as a log may.
pub(super) fn line(text: &str) {
    let stamp = jiff::ZonedDateTime::now().strftime("%Y-%m-%d %H:%M:%S");
    plain(&format!("[{stamp}] {text}"));
}

/// Writes one line as it is.
pub(super) fn plain(text: &str) {
    let mut out = std::io::stdout().lock();
    let _ = writeln!(out, "{text}");
    let _ = out.flush();
}
