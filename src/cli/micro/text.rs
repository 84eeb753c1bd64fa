//! Microtests for people, for a terminal of 80 columns.

use unicode_width::UnicodeWidthStr as _;

use super::MicroReports;
use crate::cli::style::Style;
use crate::cli::table::{Cell, Mark, table};
use crate::kernel::figure::table::{Table, tables};
use crate::kernel::report::{ErrorClass, MicroReport};

/// Columns for sentences; tables are as wide as they must be.
const WIDTH: usize = 80;

/// What was measured, and what each candidate's numbers mean.
pub fn text(report: &MicroReports, style: Style) -> String {
    report.reports.iter().map(|r| one(r, style)).collect::<Vec<_>>().join("\n\n")
}

fn one(report: &MicroReport, style: Style) -> String {
    let head = format!("{} on {}, {:.2} s", style.bold(&report.spec), report.device, report.seconds);
    let about = [&report.shape, &report.provenance].map(|s| style.dim(&wrapped(s, 0)));
    let mut blocks = vec![format!("{head}\n{}\n{}", about[0], about[1])];
    blocks.extend(bands(report, style));
    blocks.extend(tables(report).iter().map(|t| one_table(report, t, style)));
    blocks.extend(controls(report, style));
    blocks.extend(verdicts(report, style));
    blocks.join("\n\n")
}

/// What the noise band is made of, once for all parts that are banded alike.
fn bands(report: &MicroReport, style: Style) -> Option<String> {
    let band = report.bands.last()?;
    let members: Vec<&str> = band.members.iter().map(|m| m.name.as_str()).collect();
    Some(style.dim(&wrapped(&format!("noise band: {}", members.join(", ")), 0)))
}

fn one_table(report: &MicroReport, t: &Table, style: Style) -> String {
    // What belongs to the noise band matters less than what is judged by it.
    let floor = |row: &[String]| row[0] == "floor" && !report.verdicts.iter().any(|v| v.candidate == "floor");
    let cells = |row: &Vec<String>| {
        let mark = if floor(row) { Mark::Dim } else { Mark::Plain };
        row.iter().map(|text| Cell::marked(text, mark)).collect()
    };
    let rows: Vec<Vec<Cell>> = t.rows.iter().map(cells).collect();
    format!("{}\n{}", style.bold(&wrapped(&t.title, 0)), table(&t.heading, &t.right, &rows, style))
}

/// Twins that were caught by name; one that was missed makes the report worthless, and is told in full.
fn controls(report: &MicroReport, style: Style) -> Vec<String> {
    let mut out: Vec<String> = Vec::new();
    let caught: Vec<&str> = report.controls.iter().filter(|c| c.caught).map(|c| c.name.as_str()).collect();
    if !report.controls.is_empty() {
        let head = format!("known-bad twins caught, {} of {}", caught.len(), report.controls.len());
        let names = if caught.is_empty() { String::new() } else { format!(": {}", caught.join(", ")) };
        out.push(wrapped(&format!("{head}{names}"), 0));
    }
    for why in &report.left_out {
        out.push(wrapped(&format!("left out: {why}"), 2));
    }
    for why in report.spoiled() {
        out.push(format!("{}\n{}", style.error("WORTHLESS"), wrapped(&why, 2)));
    }
    out
}

/// Each candidate with its class and sentence; what a verdict does not show, once if it is the same for all.
fn verdicts(report: &MicroReport, style: Style) -> Option<String> {
    let first = report.verdicts.first()?;
    let same = report.verdicts.iter().all(|v| v.does_not_show == first.does_not_show);
    let width = report.verdicts.iter().map(|v| v.candidate.width()).max().unwrap_or(0);
    let one = |v: &crate::kernel::report::CandidateVerdict| {
        let pad = " ".repeat(width.saturating_sub(v.candidate.width()));
        let says = if same { v.says.clone() } else { format!("{}; {}", v.says, v.does_not_show) };
        format!("{}{pad}  {}\n{}", style.bold(&v.candidate), class(v.class, style), wrapped(&says, 2))
    };
    let mut lines: Vec<String> = report.verdicts.iter().map(one).collect();
    if same {
        lines.push(style.dim(&wrapped(&first.does_not_show, 0)));
    }
    Some(lines.join("\n"))
}

fn class(class: ErrorClass, style: Style) -> String {
    match class {
        ErrorClass::BelowFloor => style.good("below the floor"),
        ErrorClass::AboveFloor => style.warning("above the floor"),
        ErrorClass::FlipsDecisions => style.error("flips decisions"),
        ErrorClass::Broken => style.error("broken"),
    }
}

/// The text in lines of at most [`WIDTH`] columns, each indented; a word that is longer stands alone.
fn wrapped(text: &str, indent: usize) -> String {
    let mut lines: Vec<String> = Vec::new();
    let mut line = String::new();
    for word in text.split_whitespace() {
        if !line.is_empty() && indent + line.width() + 1 + word.width() > WIDTH {
            lines.push(std::mem::take(&mut line));
        }
        if !line.is_empty() {
            line.push(' ');
        }
        line.push_str(word);
    }
    lines.push(line);
    let indent = " ".repeat(indent);
    lines.iter().map(|l| format!("{indent}{l}")).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::figure::sample;

    fn of(report: MicroReport) -> String {
        text(&MicroReports { reports: vec![report], spoiled: Vec::new(), files: Vec::new() }, Style::PLAIN)
    }

    #[test]
    fn a_whole_report_fits_into_eighty_columns() {
        let mut report = sample::report();
        // The longest name of a built-in candidate.
        for curve in report.curves.iter_mut().filter(|c| c.candidate == "tf32") {
            curve.candidate = "mma-rounded-denominator".into();
        }
        let text = of(report);
        for line in text.lines() {
            assert!(line.width() <= 80, "{line}");
            assert!(!line.ends_with(' '), "{line}");
        }
    }

    #[test]
    fn a_report_reads_from_what_was_measured_to_what_it_means() {
        insta::assert_snapshot!("whole", of(sample::report()));
    }

    #[test]
    fn a_missed_twin_is_told_in_full() {
        let mut report = sample::report();
        report.controls[0].caught = false;
        let text = of(report);
        assert!(text.contains("known-bad twins caught, 0 of 1\n"), "{text}");
        assert!(text.contains("WORTHLESS\n  the test missed its known-bad twin `transposed`: caught,"), "{text}");
    }

    #[test]
    fn what_verdicts_do_not_show_is_told_with_each_where_they_differ() {
        let mut report = sample::report();
        report.verdicts[1].does_not_show = "nothing else".into();
        let text = of(report);
        assert!(text.contains("8 times below the band at every site; nothing else"), "{text}");
    }
}
