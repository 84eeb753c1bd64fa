//! In which order the patches stand, and by what they are grouped.
//!
//! Groups stand in the order of their most suspect member. Not responsible for the risk, which is the order in which
//! rows come here.

use std::collections::BTreeMap;

use super::View;
use super::patches::verdict_of;
use crate::case::Gate;
use crate::isolate::verdict::Finding;
use crate::patch::risk::{Kind, Ranked};
use crate::patch::state::State;
use crate::patch::types::GateKind;

/// The order of the rows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Order {
    /// The most suspect first.
    #[default]
    Risk,
    /// By id.
    Id,
    /// The guilty first, the acquitted last.
    Verdict,
    /// What acts first, what is shown to be dead last.
    State,
}

impl Order {
    /// All, in the order in which the key shows them.
    pub const ALL: [Self; 4] = [Self::Risk, Self::Id, Self::Verdict, Self::State];

    /// Its name in the palette and in the title.
    pub fn name(self) -> &'static str {
        match self {
            Self::Risk => "risk",
            Self::Id => "id",
            Self::Verdict => "verdict",
            Self::State => "state",
        }
    }

    /// The order of that name.
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|o| o.name() == name)
    }

    /// The one after it.
    #[must_use]
    pub fn next(self) -> Self {
        let at = Self::ALL.iter().position(|o| *o == self).unwrap_or(0);
        Self::ALL[(at + 1) % Self::ALL.len()]
    }
}

/// By what rows are grouped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Grouping {
    /// Not at all.
    #[default]
    None,
    /// By the class of their risk.
    Tier,
    /// By what switches them.
    Gate,
    /// By the first file that they change.
    File,
}

impl Grouping {
    /// All, in the order in which the key shows them.
    pub const ALL: [Self; 4] = [Self::None, Self::Tier, Self::Gate, Self::File];

    /// Its name in the palette and in the title.
    pub fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Tier => "tier",
            Self::Gate => "gate",
            Self::File => "file",
        }
    }

    /// The grouping of that name.
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|g| g.name() == name)
    }

    /// The one after it.
    #[must_use]
    pub fn next(self) -> Self {
        let at = Self::ALL.iter().position(|g| *g == self).unwrap_or(0);
        Self::ALL[(at + 1) % Self::ALL.len()]
    }

    /// Title and least width of the column that names the group; the risk names its tier already.
    pub fn column(self) -> Option<(&'static str, u16)> {
        match self {
            Self::None | Self::Tier => None,
            Self::Gate => Some(("switch", 8)),
            Self::File => Some(("file", 16)),
        }
    }
}

/// Order and grouping together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Arrangement {
    /// The order, within groups where there are any.
    pub order: Order,
    /// The grouping.
    pub grouping: Grouping,
}

impl Arrangement {
    /// In words, for the title: `by risk`, `by file, verdict`.
    pub fn words(self) -> String {
        match self.grouping {
            Grouping::None => format!("by {}", self.order.name()),
            grouping => format!("by {}, {}", grouping.name(), self.order.name()),
        }
    }
}

/// The rows of the ranking in this arrangement, as places in the ranking.
pub fn arranged(view: &View<'_>, by: Arrangement) -> Vec<usize> {
    let ranked = &view.derived.ranked;
    let mut rows: Vec<usize> = (0..ranked.len()).collect();
    // The sort is stable, so that equals stay in the order of their risk.
    match by.order {
        Order::Risk => {}
        Order::Id => rows.sort_by(|a, b| ranked[*a].id.cmp(&ranked[*b].id)),
        Order::Verdict => rows.sort_by_cached_key(|i| guilt(view, &ranked[*i])),
        Order::State => rows.sort_by_cached_key(|i| liveliest(&ranked[*i])),
    }
    if by.grouping != Grouping::None {
        let mut first: BTreeMap<String, usize> = BTreeMap::new();
        for one in ranked {
            let place = first.len();
            first.entry(group_of(view, one, by.grouping)).or_insert(place);
        }
        rows.sort_by_cached_key(|i| first.get(&group_of(view, &ranked[*i], by.grouping)).copied());
    }
    rows
}

/// The place of a verdict: what is under suspicion by trials stands above what was never judged.
fn guilt(view: &View<'_>, ranked: &Ranked) -> u8 {
    let verdict = verdict_of(view, &ranked.id).filter(|_| ranked.kind == Kind::Patch);
    match verdict.map(|v| v.verdict) {
        Some(Finding::Guilty) => 0,
        Some(Finding::NotSeparable) => 1,
        Some(Finding::Inconclusive) => 2,
        Some(Finding::NotShown) => 3,
        None => 4,
        Some(Finding::Acquitted) => 5,
    }
}

/// The place of the state that says most for a patch to act, of those on its targets.
fn liveliest(ranked: &Ranked) -> u8 {
    let place = |state: &State| match state {
        State::Live => 0,
        State::Unknown => 1,
        State::SetButNotRead => 2,
        State::Off => 3,
        State::Inert { .. } => 4,
        State::NotImported => 5,
    };
    // What has no state at all is as unknown as what could not be read.
    ranked.states.iter().map(|found| place(&found.state)).min().unwrap_or(1)
}

/// The group of a row.
pub fn group_of(view: &View<'_>, ranked: &Ranked, by: Grouping) -> String {
    match by {
        Grouping::None => String::new(),
        Grouping::Tier => ranked.tier.word().to_owned(),
        _ if ranked.kind == Kind::Factor => "no patch".to_owned(),
        Grouping::Gate => switch(view, &ranked.id).to_owned(),
        Grouping::File => file(view, &ranked.id),
    }
}

fn switch(view: &View<'_>, id: &str) -> &'static str {
    if let Some(patch) = view.state.case.as_ref().and_then(|c| c.patch(id)) {
        return match &patch.gate {
            Gate::Env { .. } => "variable",
            Gate::Flag { .. } => "flag",
            Gate::Reverse { .. } => "source",
            Gate::None => "none",
        };
    }
    let Some(entry) = view.derived.imported.get(id) else { return "none" };
    let kinds = || entry.gates.iter().map(|gate| gate.kind);
    if kinds().any(GateKind::is_variable) {
        return "variable";
    }
    match kinds().min() {
        Some(GateKind::ServerArgs) => "flag",
        Some(GateKind::Arch) => "card",
        Some(GateKind::Constant) => "constant",
        _ => "none",
    }
}

/// The path of the first file, without the line.
fn file(view: &View<'_>, id: &str) -> String {
    if let Some(file) = view.derived.imported.get(id).and_then(|entry| entry.files.first()) {
        return file.path.clone();
    }
    let site = view.state.case.as_ref().and_then(|c| c.patch(id)).and_then(|p| p.site.as_deref());
    let site = site.unwrap_or("not named");
    let line = |tail: &str| !tail.is_empty() && tail.chars().all(|c| c.is_ascii_digit() || c == '-');
    site.rsplit_once(':').filter(|(_, tail)| line(tail)).map_or(site, |(path, _)| path).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_round_trip_and_keys_come_round() {
        let mut order = Order::default();
        let mut grouping = Grouping::default();
        for _ in 0..4 {
            assert_eq!(Order::parse(order.name()), Some(order));
            assert_eq!(Grouping::parse(grouping.name()), Some(grouping));
            (order, grouping) = (order.next(), grouping.next());
        }
        assert_eq!((order, grouping), (Order::Risk, Grouping::None));
    }
}
