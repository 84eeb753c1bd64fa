//! The edges of the noise band.
//!
//! Responsible for the least and the greatest error at each point. Not responsible for what its
//! members vary.

use crate::kernel::report::{Band, CurveMode, Member};

/// The errors of one right arithmetic, point by point.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MemberErrors<'a> {
    /// Name, such as `input-ulp`.
    pub name: &'a str,
    /// What it varies, in one line.
    pub says: &'a str,
    /// Its relative L2 errors.
    pub errors: &'a [f64],
}

/// The band that these members make.
///
/// An edge is NaN at a point where an error is NaN or missing, and where there is no member: a band
/// that is not known there must not look narrow. A member's root mean square is NaN likewise.
pub fn band(part: &str, mode: CurveMode, labels: &[String], members: &[MemberErrors<'_>]) -> Band {
    let at = |point: usize| members.iter().map(move |member| member.errors.get(point).copied().unwrap_or(f64::NAN));
    let edge = |beats: fn(f64, f64) -> bool| {
        let pick = |a: f64, b: f64| if a.is_nan() || beats(a, b) { a } else { b };
        (0..labels.len()).map(|point| at(point).reduce(pick).unwrap_or(f64::NAN)).collect()
    };
    Band {
        part: part.into(),
        mode,
        labels: labels.to_vec(),
        low: edge(|a, b| a < b),
        high: edge(|a, b| a > b),
        members: members
            .iter()
            .map(|member| Member {
                name: member.name.into(),
                says: member.says.into(),
                rms: root_mean_square(member.errors, labels.len()),
            })
            .collect(),
    }
}

fn root_mean_square(errors: &[f64], points: usize) -> f64 {
    if errors.len() < points || points == 0 {
        return f64::NAN;
    }
    (errors[..points].iter().map(|e| e * e).sum::<f64>() / points as f64).sqrt()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(members: &[&[f64]]) -> Band {
        let labels: Vec<String> = (0..3).map(|i| format!("layer {i}")).collect();
        let members: Vec<MemberErrors<'_>> =
            members.iter().map(|errors| MemberErrors { name: "m", says: "s", errors }).collect();
        band("mixes", CurveMode::PerSite, &labels, &members)
    }

    #[test]
    fn edges_are_the_least_and_the_greatest() {
        let got = of(&[&[1.0, 5.0, 3.0], &[2.0, 4.0, 3.0]]);
        assert_eq!((got.low, got.high), (vec![1.0, 4.0, 3.0], vec![2.0, 5.0, 3.0]));
        assert_eq!((got.part.as_str(), got.labels.len(), got.members.len()), ("mixes", 3, 2));
        assert!((got.members[0].rms - (35.0_f64 / 3.0).sqrt()).abs() < 1e-12);
    }

    #[test]
    fn an_unknown_edge_stays_unknown() {
        for members in [[&[1.0, f64::NAN, 2.0][..], &[1.0, 3.0, 4.0]], [&[1.0, 3.0, 4.0], &[1.0, f64::NAN, 2.0]]] {
            let got = of(&members);
            assert!(got.low[1].is_nan() && got.high[1].is_nan());
            assert_eq!((got.low[2], got.high[2]), (2.0, 4.0));
            assert_eq!(got.members.iter().filter(|m| m.rms.is_nan()).count(), 1);
        }
        let short = of(&[&[1.0, 2.0]]);
        assert!(short.high[2].is_nan() && short.members[0].rms.is_nan());
        assert!(of(&[]).high.iter().all(|e| e.is_nan()));
    }

    #[test]
    fn an_infinite_error_is_an_edge() {
        let got = of(&[&[f64::INFINITY; 3], &[1.0; 3]]);
        assert_eq!((got.low[0], got.high[0]), (1.0, f64::INFINITY));
    }
}
