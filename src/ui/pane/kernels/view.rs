//! What a person has chosen to see of a microtest.

use std::collections::BTreeSet;
use std::ops::Range;

use crate::kernel::figure::{mode_name, mode_words};
use crate::kernel::report::{CurveMode, MicroReport};

/// A way of looking at a microtest.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Shown {
    /// Error curves of each site alone.
    #[default]
    PerSite,
    /// Error curves over the sites.
    Compounded,
    /// Error curves of one site, measured at the end.
    SingleInjection,
    /// How the errors of the elements are spread.
    Histogram,
    /// Errors of one candidate by point and row.
    Heat,
    /// Sets, decisions, causes, growth and quantiles.
    Tables,
}

impl Shown {
    /// All, in the order in which the key goes through them.
    pub const ALL: [Self; 6] =
        [Self::PerSite, Self::Compounded, Self::SingleInjection, Self::Histogram, Self::Heat, Self::Tables];

    /// The way of measuring, for curves.
    pub fn mode(self) -> Option<CurveMode> {
        match self {
            Self::PerSite => Some(CurveMode::PerSite),
            Self::Compounded => Some(CurveMode::Compounded),
            Self::SingleInjection => Some(CurveMode::SingleInjection),
            Self::Histogram | Self::Heat | Self::Tables => None,
        }
    }

    /// Its name in the palette.
    pub fn name(self) -> &'static str {
        match self {
            Self::Histogram => "histogram",
            Self::Heat => "heat",
            Self::Tables => "tables",
            curves => curves.mode().map_or("", mode_name),
        }
    }

    /// What it shows, in a few words for the title.
    pub fn words(self) -> &'static str {
        match self {
            Self::Histogram => "histogram",
            Self::Heat => "heat map",
            Self::Tables => "tables",
            curves => curves.mode().map_or("", mode_words),
        }
    }

    /// The view of that name.
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|v| v.name() == name)
    }

    /// Whether a report has anything for it.
    pub fn has(self, report: &MicroReport) -> bool {
        match self {
            Self::Histogram => !report.spreads.is_empty(),
            Self::Heat => !report.heats.is_empty(),
            Self::Tables => !report.curves.is_empty(),
            curves => report.curves.iter().any(|c| Some(c.mode) == curves.mode()),
        }
    }
}

/// An act on what is shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Act {
    /// Show this view, or the next one.
    Show(Option<Shown>),
    /// Show fewer points around the cursor, or more.
    Zoom {
        /// Fewer.
        closer: bool,
    },
    /// Choose this candidate, or the next one.
    Choose(Option<String>),
    /// Hide or show this candidate, or the chosen one.
    Hide(Option<String>),
    /// Hide nothing.
    ShowAll,
    /// Lay other runs of the same test over it, or take them away.
    LayOver,
}

/// What is shown.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Settings {
    shown: Shown,
    /// How often the range of points was halved.
    zoom: u32,
    chosen: Option<String>,
    hidden: BTreeSet<String>,
    /// Other runs of the same test are drawn over it.
    pub laid_over: bool,
}

/// Fewest points that a zoom leaves.
const FEWEST: usize = 4;

impl Settings {
    /// The view: the one that was asked for if the report has it, else the first that it has.
    pub fn shown(&self, report: &MicroReport) -> Shown {
        if self.shown.has(report) {
            return self.shown;
        }
        Shown::ALL.into_iter().find(|v| v.has(report)).unwrap_or_default()
    }

    /// The chosen candidate: the one that was named if the report has it, else the one that strays furthest.
    pub fn chosen<'a>(&self, report: &'a MicroReport) -> Option<&'a str> {
        let names = names(report);
        let named = names.iter().copied().find(|n| Some(*n) == self.chosen.as_deref());
        let worst = || report.worst().map(|v| v.candidate.as_str()).filter(|w| names.contains(w));
        named.or_else(worst).or_else(|| names.first().copied())
    }

    /// Whether a candidate is hidden.
    pub fn hides(&self, candidate: &str) -> bool {
        self.hidden.contains(candidate)
    }

    /// The points that are shown of so many: a part around the cursor that is halved by each step.
    pub fn window(&self, points: usize, cursor: usize) -> Range<usize> {
        let width = (points >> self.zoom.min(30)).max(FEWEST).min(points);
        let start = cursor.saturating_sub(width / 2).min(points - width);
        start..start + width
    }

    /// Changes what is shown; says it, or why not.
    ///
    /// # Errors
    /// The report has no such view or candidate, or there is no closer and no wider.
    pub fn act(&mut self, act: Act, report: &MicroReport, points: usize, others: usize) -> Result<String, String> {
        match act {
            Act::Show(view) => self.show(view, report),
            Act::Zoom { closer } => self.magnify(closer, points),
            Act::Choose(name) => {
                let name = match name {
                    Some(name) => known(&name, report)?,
                    None => next_name(report, self.chosen(report)).ok_or("the report has no candidate")?,
                };
                let hidden = if self.hides(&name) { ", which is hidden" } else { "" };
                let said = format!("{name}{hidden}");
                self.chosen = Some(name);
                Ok(said)
            }
            Act::Hide(name) => {
                let name = match name {
                    Some(name) => known(&name, report)?,
                    None => self.chosen(report).ok_or("the report has no candidate")?.to_owned(),
                };
                if self.hidden.remove(&name) {
                    return Ok(format!("{name} shown"));
                }
                self.hidden.insert(name.clone());
                Ok(format!("{name} hidden"))
            }
            Act::ShowAll => {
                self.hidden.clear();
                Ok("all candidates shown".into())
            }
            Act::LayOver if !self.laid_over && others == 0 => {
                Err(format!("there is no other run of {} to lay over it", report.spec))
            }
            Act::LayOver => {
                self.laid_over = !self.laid_over;
                Ok(if self.laid_over { "other runs laid over it" } else { "this run alone" }.into())
            }
        }
    }

    fn show(&mut self, view: Option<Shown>, report: &MicroReport) -> Result<String, String> {
        let now = self.shown(report);
        let has: Vec<Shown> = Shown::ALL.into_iter().filter(|v| v.has(report)).collect();
        let next = match view {
            Some(view) if !view.has(report) => {
                return Err(format!("{} has nothing for the view `{}`", report.spec, view.name()));
            }
            Some(view) => view,
            None => {
                let at = has.iter().position(|v| *v == now).map_or(0, |at| at + 1);
                *has.get(at % has.len().max(1)).ok_or("the report has nothing to show")?
            }
        };
        self.shown = next;
        Ok(next.words().to_owned())
    }

    fn magnify(&mut self, closer: bool, points: usize) -> Result<String, String> {
        let width = |zoom: u32| Self { zoom, ..Self::default() }.window(points, 0).len();
        let before = width(self.zoom);
        let zoom = if closer { self.zoom + 1 } else { self.zoom.saturating_sub(1) };
        if width(zoom) == before {
            self.zoom = if closer { self.zoom } else { zoom };
            return Err(format!("{before} points are the {} that are shown", if closer { "fewest" } else { "most" }));
        }
        self.zoom = zoom;
        Ok(format!("{} of {points} points", width(zoom)))
    }
}

/// The candidates of a report, each once, in its order.
pub fn names(report: &MicroReport) -> Vec<&str> {
    let mut names: Vec<&str> = Vec::new();
    for curve in &report.curves {
        if !names.contains(&curve.candidate.as_str()) {
            names.push(&curve.candidate);
        }
    }
    names
}

fn known(name: &str, report: &MicroReport) -> Result<String, String> {
    let all = names(report);
    if all.contains(&name) {
        return Ok(name.to_owned());
    }
    Err(format!("{} has no candidate `{name}`; there is {}", report.spec, all.join(", ")))
}

fn next_name(report: &MicroReport, now: Option<&str>) -> Option<String> {
    let names = names(report);
    let at = now.and_then(|n| names.iter().position(|m| *m == n)).map_or(0, |at| at + 1);
    names.get(at % names.len().max(1)).map(|n| (*n).to_owned())
}

/// The letter of the `n`th line.
pub fn letter(n: usize) -> char {
    char::from(b'a' + (n % 26) as u8)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::figure::sample;

    fn acted(settings: &mut Settings, act: Act) -> Result<String, String> {
        settings.act(act, &sample::report(), sample::SITES, 0)
    }

    #[test]
    fn the_key_goes_through_what_the_report_has() {
        let mut settings = Settings::default();
        let said: Vec<String> = (0..5).map(|_| acted(&mut settings, Act::Show(None)).unwrap()).collect();
        let expect = ["compounded over the sites", "histogram", "heat map", "tables", "each site alone"];
        assert_eq!(said, expect);
        let bare = MicroReport { curves: sample::report().curves, ..MicroReport::default() };
        settings = Settings { shown: Shown::Heat, ..Settings::default() };
        assert_eq!(settings.shown(&bare), Shown::PerSite);
        assert!(settings.act(Act::Show(Some(Shown::Heat)), &bare, 12, 0).is_err());
        assert!(Settings::default().act(Act::Show(None), &MicroReport::default(), 0, 0).is_err());
    }

    #[test]
    fn names_of_views_round_trip() {
        for view in Shown::ALL {
            assert_eq!(Shown::parse(view.name()), Some(view));
        }
        assert_eq!(Shown::parse(""), None);
    }

    #[test]
    fn a_window_holds_the_cursor_and_stays_inside() {
        for points in [0, 1, 3, 4, 12, 86] {
            for zoom in 0..9 {
                let settings = Settings { zoom, ..Settings::default() };
                for cursor in 0..points {
                    let window = settings.window(points, cursor);
                    assert!(window.contains(&cursor) && window.end <= points, "{points} {zoom} {cursor}: {window:?}");
                    assert!(window.len() >= FEWEST.min(points));
                }
            }
        }
        assert_eq!(Settings { zoom: 2, ..Settings::default() }.window(86, 40), 30..51);
    }

    #[test]
    fn a_zoom_that_changes_nothing_is_refused() {
        let mut settings = Settings::default();
        assert_eq!(acted(&mut settings, Act::Zoom { closer: true }).unwrap(), "6 of 12 points");
        assert_eq!(acted(&mut settings, Act::Zoom { closer: true }).unwrap(), "4 of 12 points");
        assert_eq!(
            acted(&mut settings, Act::Zoom { closer: true }).unwrap_err(),
            "4 points are the fewest that are shown"
        );
        assert_eq!(acted(&mut settings, Act::Zoom { closer: false }).unwrap(), "6 of 12 points");
        assert_eq!(acted(&mut settings, Act::Zoom { closer: false }).unwrap(), "12 of 12 points");
        assert!(acted(&mut settings, Act::Zoom { closer: false }).is_err());
    }

    #[test]
    fn the_worst_candidate_is_chosen_until_another_is() {
        let report = sample::report();
        let mut settings = Settings::default();
        assert_eq!(settings.chosen(&report), Some("scale-twice"));
        assert_eq!(acted(&mut settings, Act::Choose(None)).unwrap(), "bf16");
        assert_eq!(acted(&mut settings, Act::Hide(None)).unwrap(), "bf16 hidden");
        assert!(settings.hides("bf16") && !settings.hides("tf32"));
        assert_eq!(acted(&mut settings, Act::Choose(Some("bf16".into()))).unwrap(), "bf16, which is hidden");
        assert_eq!(acted(&mut settings, Act::Hide(Some("bf16".into()))).unwrap(), "bf16 shown");
        let unknown = acted(&mut settings, Act::Choose(Some("fp8".into()))).unwrap_err();
        assert_eq!(unknown, "mhc-mix has no candidate `fp8`; there is bf16, tf32, scale-twice");
    }

    #[test]
    fn only_another_run_can_be_laid_over() {
        let mut settings = Settings::default();
        assert!(acted(&mut settings, Act::LayOver).is_err());
        assert!(settings.act(Act::LayOver, &sample::report(), 12, 1).is_ok() && settings.laid_over);
        assert_eq!(acted(&mut settings, Act::LayOver).unwrap(), "this run alone");
    }
}
