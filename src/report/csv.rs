//! Error curves as comma-separated values, one point a line.

use crate::kernel::figure::{class_of, is_above, main_part, mode_name};
use crate::kernel::report::{Band, Curve, CurveMode, MicroReport};

/// The columns, in order.
///
/// `kind` is `candidate`, `floor`, `twin`, or `member` where a line is one member of the noise band (its `rel_l2` is
/// the root mean square over all points then, and it has no `point`). `mode` is `per-site`, `compounded` or `single-injection`; `point`
/// counts from 1. An error that is not a number is `NaN`, an infinite one `inf`; a cell that is empty is unknown.
pub const COLUMNS: [&str; 15] = [
    "spec",
    "device",
    "at",
    "kind",
    "candidate",
    "class",
    "part",
    "mode",
    "point",
    "label",
    "rel_l2",
    "calc_diff",
    "band_low",
    "band_high",
    "above_band",
];

/// The curves of these reports, with a line of headings.
///
/// # Errors
/// The writer's.
pub fn write(reports: &[MicroReport], out: impl std::io::Write) -> std::io::Result<()> {
    let mut csv = csv::Writer::from_writer(out);
    csv.write_record(COLUMNS)?;
    for report in reports {
        let main = main_part(report);
        let curves = report.floor.iter().map(|c| ("floor", main, c));
        let curves = curves.chain(report.curves.iter().map(|c| ("candidate", main, c)));
        let curves = curves.chain(report.parts.iter().map(|p| ("candidate", p.part.as_str(), &p.curve)));
        let twins = report.controls.iter().flat_map(|c| &c.curves).map(|c| ("twin", main, c));
        for (kind, part, curve) in curves.chain(twins) {
            write_curve(&mut csv, report, kind, part, curve)?;
        }
        for band in &report.bands {
            for member in &band.members {
                let mut row = start(report, "member", &member.name, &band.part, band.mode);
                row.extend([String::new(), member.says.clone(), float(member.rms)]);
                row.resize(COLUMNS.len(), String::new());
                csv.write_record(&row)?;
            }
        }
    }
    csv.flush()
}

fn write_curve<W: std::io::Write>(
    csv: &mut csv::Writer<W>,
    report: &MicroReport,
    kind: &str,
    part: &str,
    curve: &Curve,
) -> std::io::Result<()> {
    let band = report.bands.iter().find(|b| b.part == part && b.mode == curve.mode);
    for (i, error) in curve.rel_l2.iter().enumerate() {
        let edge = |side: fn(&Band) -> &Vec<f64>| band.and_then(|b| side(b).get(i).copied());
        let (low, high) = (edge(|b| &b.low), edge(|b| &b.high));
        let above = high.map(|h| is_above(*error, h).to_string());
        let mut row = start(report, kind, &curve.candidate, part, curve.mode);
        row.extend([
            (i + 1).to_string(),
            curve.labels.get(i).cloned().unwrap_or_default(),
            float(*error),
            curve.calc_diff.get(i).copied().map(float).unwrap_or_default(),
            low.map(float).unwrap_or_default(),
            high.map(float).unwrap_or_default(),
            if kind == "floor" { String::new() } else { above.unwrap_or_default() },
        ]);
        csv.write_record(&row)?;
    }
    Ok(())
}

/// The cells up to the mode.
fn start(report: &MicroReport, kind: &str, candidate: &str, part: &str, mode: CurveMode) -> Vec<String> {
    let class = class_of(report, candidate).map_or("", |c| c.word());
    let class = if kind == "candidate" { class } else { "" };
    let at = report.at.to_string();
    [&report.spec, &report.device, &at, kind, candidate, class, part, mode_name(mode)].map(str::to_owned).to_vec()
}

/// The shortest digits that give the same float again.
fn float(value: f64) -> String {
    if value == 0.0 || (1e-3..1e6).contains(&value.abs()) || !value.is_finite() {
        value.to_string()
    } else {
        format!("{value:e}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::figure::sample;

    fn written(reports: &[MicroReport]) -> (String, Vec<Vec<String>>) {
        let mut out = Vec::new();
        write(reports, &mut out).unwrap();
        let mut reader = csv::Reader::from_reader(out.as_slice());
        let rows = reader.records().map(|r| r.unwrap().iter().map(str::to_owned).collect()).collect();
        (String::from_utf8(out).unwrap(), rows)
    }

    #[test]
    fn every_point_of_every_curve_is_one_line() {
        let report = sample::report();
        let (text, rows) = written(std::slice::from_ref(&report));
        assert!(text.starts_with("spec,device,at,kind,candidate,class,part,mode,point,label,rel_l2,calc_diff,"));
        let kinds = |kind: &str| rows.iter().filter(|r| r[3] == kind).count();
        assert_eq!(
            [kinds("floor"), kinds("candidate"), kinds("twin"), kinds("member")],
            [2 * sample::SITES, 8 * sample::SITES, sample::SITES, 9]
        );
        assert!(rows.iter().all(|r| r.len() == COLUMNS.len()));
    }

    #[test]
    fn floats_come_back_with_the_same_bits_and_nan_stays_nan() {
        let mut report = sample::report();
        report.curves[0].rel_l2[0] = 0.1 + 0.2;
        report.curves[0].rel_l2[1] = f64::INFINITY;
        report.curves[0].rel_l2[2] = 5e-324;
        let (_, rows) = written(std::slice::from_ref(&report));
        let of = |mode: &str, point: &str| {
            let row = rows.iter().find(|r| r[4] == "bf16" && r[6] == "new-streams" && r[7] == mode && r[8] == point);
            row.unwrap().clone()
        };
        for point in [1, 2, 3, 4] {
            let read: f64 = of("per-site", &point.to_string())[10].parse().unwrap();
            assert_eq!(read.to_bits(), report.curves[0].rel_l2[point - 1].to_bits());
        }
        let bad = of("compounded", "6");
        assert_eq!((bad[10].as_str(), bad[5].as_str(), bad[14].as_str()), ("NaN", "above floor", "true"));
    }

    #[test]
    fn what_an_older_report_does_not_know_is_empty() {
        let mut report = sample::report();
        report.bands.clear();
        report.curves[0].calc_diff.clear();
        let (_, rows) = written(&[report]);
        let row = rows.iter().find(|r| r[3] == "candidate").unwrap();
        assert!(row[11..].iter().all(String::is_empty), "{row:?}");
    }

    #[test]
    fn a_label_with_commas_and_quotes_stays_one_cell() {
        let mut report = sample::report();
        report.curves[0].labels[0] = "layer 0, \"biased\"".into();
        let (_, rows) = written(&[report]);
        assert!(rows.iter().any(|r| r[9] == "layer 0, \"biased\""));
    }
}
