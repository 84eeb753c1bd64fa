//! The products of one site for a block of tokens.
//!
//! Responsible for packing weights, for cutting the inner index into stretches that stay in the
//! cache and into the runs of split-k, and for making each distinct product once. Not responsible
//! for what becomes of the products.

use pulp::Arch;
use rayon::prelude::*;

use crate::kernel::format::Storage;
use crate::kernel::oracle::hyper::{MIXES, STREAMS};
use crate::kernel::sites::group::{GROUP, Lanes, Stored, row, vectorised, widen};
use crate::kernel::sites::plan::{Key, Path, Plan, Source};
use crate::kernel::sites::product::{Element, accumulate};
use crate::kernel::sites::rounded::round_slice;

/// Longest stretch of the inner index: its weights and streams stay in a core's second cache.
const STRETCH: usize = 512;

/// Weights of several products, packed for one path.
struct Panel<E> {
    source: Source,
    /// Which products sit here.
    seats: Vec<usize>,
    /// `[4 * width][PANEL]`; a seat that is not taken is zero.
    weights: Vec<E>,
}

/// One product that is made row by row.
struct Plain {
    key: usize,
    /// `[24, 4 * width]`.
    rows: Vec<f64>,
}

/// Packed weights of one site; filled anew for each.
pub(super) struct Packed {
    keys: Vec<Key>,
    inner: usize,
    arch: Arch,
    wide: Vec<Panel<f64>>,
    narrow: Vec<Panel<f32>>,
    plain: Vec<Plain>,
    /// Ends of the stretches.
    ends: Vec<usize>,
}

/// What a block's products are: for each of them and each group `[24][8]`, and the sum of the
/// squares of all streams of each token.
pub(super) struct Products {
    /// By product, then by group.
    pub made: Vec<Vec<[Lanes; MIXES]>>,
    /// By group.
    pub squares: Vec<Lanes>,
}

impl Packed {
    /// Room for the products of a plan at streams of this width.
    pub(super) fn new(plan: &Plan, width: usize) -> Self {
        let inner = STREAMS * width;
        let on = |path: Path| (0..plan.keys.len()).filter(move |k| plan.keys[*k].path() == path);
        let plain = on(Path::Plain).map(|key| Plain { key, rows: vec![0.0; MIXES * inner] });
        Self {
            keys: plan.keys.clone(),
            inner,
            arch: Arch::new(),
            wide: panels(&plan.keys, &on(Path::F64).collect::<Vec<_>>(), inner),
            narrow: panels(&plan.keys, &on(Path::F32).collect::<Vec<_>>(), inner),
            plain: plain.collect(),
            ends: ends(&plan.keys, inner),
        }
    }

    /// Values of one token: four streams.
    pub(super) fn inner(&self) -> usize {
        self.inner
    }

    /// Takes the weights of a site: `fn`, `[24, 4 * width]`.
    pub(super) fn fill(&mut self, mixing: &[f32]) {
        let mut storages: Vec<Storage> = Vec::new();
        for key in &self.keys {
            if !storages.contains(&key.weight) {
                storages.push(key.weight);
            }
        }
        for storage in storages {
            let rounded = rounded(storage, mixing, self.inner);
            let keys = &self.keys;
            let seats = |seats: &[usize]| -> Vec<usize> {
                (0..seats.len()).filter(|seat| keys[seats[*seat]].weight == storage).collect()
            };
            self.wide
                .iter_mut()
                .for_each(|p| seats(&p.seats).iter().for_each(|seat| p.fill(*seat, &rounded, f64::from)));
            self.narrow.iter_mut().for_each(|p| seats(&p.seats).iter().for_each(|seat| p.fill(*seat, &rounded, |w| w)));
            for plain in self.plain.iter_mut().filter(|p| keys[p.key].weight == storage) {
                plain.rows.iter_mut().zip(&rounded).for_each(|(to, from)| *to = f64::from(*from));
            }
        }
    }

    /// The wanted products of a block of groups, `[groups][4 * width][8]`; those that are not wanted
    /// may be zero.
    pub(super) fn products<T: Stored>(&self, streams: &[T], wanted: &[usize]) -> Products {
        let groups: Vec<&[T]> = streams.chunks_exact(self.inner * GROUP).collect();
        let sources = self.sources(&groups, wanted);
        let mut wide = Running::<f64>::new(&self.wide, groups.len());
        let mut narrow = Running::<f32>::new(&self.narrow, groups.len());
        let mut squares = vec![[0.0; GROUP]; groups.len()];
        let mut from = 0;
        for &to in &self.ends {
            for (source, rounded) in &sources {
                for (g, group) in groups.iter().enumerate() {
                    let read = source.read(from, to, self.inner);
                    let held = rounded.as_ref().map(|r| &r[g][read.clone()]);
                    let (wide, narrow) = (&mut wide.x[g], &mut narrow.x[g]);
                    match held {
                        Some(from) => self.arch.dispatch(Load { from, wide, narrow }),
                        None => self.arch.dispatch(Load { from: &group[read], wide, narrow }),
                    }
                    if *source == Source::default() {
                        let squares = &mut squares[g];
                        self.arch.dispatch(AddSquares { x: &wide[..(to - from) * GROUP], squares });
                    }
                }
                let part = Part { source: *source, wanted, from, to };
                wide.stretch(self.arch, &self.wide, &part);
                narrow.stretch(self.arch, &self.narrow, &part);
            }
            wide.end_runs(&self.wide, &self.keys, to, self.inner);
            narrow.end_runs(&self.narrow, &self.keys, to, self.inner);
            from = to;
        }
        let mut made = vec![vec![[[0.0; GROUP]; MIXES]; groups.len()]; self.keys.len()];
        wide.hand_over(&self.wide, &mut made);
        narrow.hand_over(&self.narrow, &mut made);
        for plain in self.plain.iter().filter(|plain| wanted.contains(&plain.key)) {
            let key = &self.keys[plain.key];
            for (g, group) in groups.iter().enumerate() {
                let rows: [Vec<f64>; GROUP] = std::array::from_fn(|lane| key.source.row(&row(group, lane)));
                for (made, weights) in made[plain.key][g].iter_mut().zip(plain.rows.chunks_exact(self.inner)) {
                    *made = rows.each_ref().map(|x| key.accumulate.dot(weights, x));
                }
            }
        }
        Products { made, squares }
    }

    /// What the vector kernels read, the reference's source first; streams that are rounded in
    /// another way are held, `[groups][4 * width][8]`.
    fn sources<T: Stored>(&self, groups: &[&[T]], wanted: &[usize]) -> Vec<(Source, Option<Vec<Vec<f64>>>)> {
        let mut sources = vec![(Source::default(), None)];
        for key in wanted.iter().map(|key| &self.keys[*key]).filter(|key| key.path() != Path::Plain) {
            let source = key.source;
            if sources.iter().any(|(known, _)| *known == source) {
                continue;
            }
            let held = (source.storage != Storage::default()).then(|| groups.iter().map(|g| source.held(g)).collect());
            sources.push((source, held));
        }
        sources
    }
}

impl Source {
    /// Where the streams of a stretch of the inner index lie in a group.
    fn read(self, from: usize, to: usize, inner: usize) -> std::ops::Range<usize> {
        let start = if self.copied { from % (inner / STREAMS) } else { from };
        start * GROUP..(start + to - from) * GROUP
    }

    /// A whole group, rounded.
    fn held<T: Stored>(self, group: &[T]) -> Vec<f64> {
        let mut held = vec![0.0; group.len()];
        for lane in 0..GROUP {
            let row = row(group, lane);
            let stored = self.storage.store(&row, row.len());
            held.iter_mut().skip(lane).step_by(GROUP).zip(stored).for_each(|(to, from)| *to = from);
        }
        held
    }

    /// One token as this source gives it.
    fn row(self, row: &[f64]) -> Vec<f64> {
        let stored = self.storage.store(row, row.len());
        if self.copied { stored[..row.len() / STREAMS].repeat(STREAMS) } else { stored }
    }
}

fn rounded(storage: Storage, mixing: &[f32], inner: usize) -> Vec<f32> {
    let mut values = mixing.to_vec();
    match storage {
        // Elements are rounded one by one, so rows can be shared out.
        Storage::Element(_) => values.par_chunks_mut(inner).for_each(|row| round_slice(storage, row, inner)),
        Storage::Block(_) => round_slice(storage, &mut values, inner),
    }
    values
}

/// Seats the keys in panels, keys of one source side by side.
fn panels<E: Element>(keys: &[Key], on_path: &[usize], inner: usize) -> Vec<Panel<E>> {
    let mut panels: Vec<Panel<E>> = Vec::new();
    for &key in on_path {
        let source = keys[key].source;
        let room = panels.iter_mut().find(|p| p.source == source && p.seats.len() < E::SEATS);
        match room {
            Some(panel) => panel.seats.push(key),
            None => {
                panels.push(Panel { source, seats: vec![key], weights: vec![E::default(); inner * E::PANEL] });
            }
        }
    }
    panels
}

/// Where stretches end: where a run of a split ends, where a stream ends, and every 512 at least.
fn ends(keys: &[Key], inner: usize) -> Vec<usize> {
    let mut ends: Vec<usize> = (1..=STREAMS).map(|stream| stream * (inner / STREAMS)).collect();
    ends.extend((STRETCH..inner).step_by(STRETCH));
    for key in keys {
        let splits = splits(key, inner);
        ends.extend((1..=splits).map(|run| run * inner / splits));
    }
    ends.sort_unstable();
    ends.dedup();
    ends
}

fn splits(key: &Key, inner: usize) -> usize {
    key.accumulate.splits.clamp(1, inner)
}

fn ends_run(key: &Key, at: usize, inner: usize) -> bool {
    let splits = splits(key, inner);
    (1..=splits).any(|run| run * inner / splits == at)
}

impl<E: Element> Panel<E> {
    fn fill(&mut self, seat: usize, rows: &[f32], convert: impl Fn(f32) -> E + Sync) {
        let inner = self.weights.len() / E::PANEL;
        self.weights.par_chunks_mut(STRETCH * E::PANEL).enumerate().for_each(|(part, weights)| {
            let first = part * STRETCH;
            let stretch = weights.len() / E::PANEL;
            for output in 0..MIXES {
                let row = &rows[output * inner + first..][..stretch];
                let column = weights.iter_mut().skip(seat * MIXES + output).step_by(E::PANEL);
                column.zip(row).for_each(|(to, from)| *to = convert(*from));
            }
        });
    }
}

/// What is multiplied at a time.
struct Part<'a> {
    source: Source,
    wanted: &'a [usize],
    from: usize,
    to: usize,
}

/// Sums on their way: of the current run, and of the runs before it.
struct Running<E> {
    /// Streams of the current stretch, by group.
    x: Vec<Vec<E>>,
    /// `[panel][group][8][PANEL]`.
    run: Vec<E>,
    /// The same.
    total: Vec<E>,
    groups: usize,
}

impl<E: Element> Running<E> {
    fn new(panels: &[Panel<E>], groups: usize) -> Self {
        let sums = vec![E::default(); panels.len() * groups * GROUP * E::PANEL];
        let x = if panels.is_empty() { 0 } else { STRETCH * GROUP };
        Self { x: vec![vec![E::default(); x]; groups], run: sums.clone(), total: sums, groups }
    }

    fn stretch(&mut self, arch: Arch, panels: &[Panel<E>], part: &Part<'_>) {
        let (from, to) = (part.from, part.to);
        let sums = self.run.chunks_exact_mut(self.groups * GROUP * E::PANEL);
        let of_part =
            |panel: &Panel<E>| panel.source == part.source && panel.seats.iter().any(|key| part.wanted.contains(key));
        for (panel, sums) in panels.iter().zip(sums).filter(|(panel, _)| of_part(panel)) {
            let weights = &panel.weights[from * E::PANEL..to * E::PANEL];
            for (x, sums) in self.x.iter().zip(sums.chunks_exact_mut(GROUP * E::PANEL)) {
                accumulate(arch, weights, &x[..(to - from) * GROUP], sums);
            }
        }
    }

    /// Adds the runs that end here to those before.
    fn end_runs(&mut self, panels: &[Panel<E>], keys: &[Key], at: usize, inner: usize) {
        let size = self.groups * GROUP * E::PANEL;
        for (p, panel) in panels.iter().enumerate() {
            for (seat, _) in panel.seats.iter().enumerate().filter(|(_, key)| ends_run(&keys[**key], at, inner)) {
                let rows = self.run[p * size..][..size].chunks_exact_mut(E::PANEL);
                for (run, total) in rows.zip(self.total[p * size..][..size].chunks_exact_mut(E::PANEL)) {
                    for column in seat * MIXES..(seat + 1) * MIXES {
                        total[column] += run[column];
                        run[column] = E::default();
                    }
                }
            }
        }
    }

    fn hand_over(&self, panels: &[Panel<E>], made: &mut [Vec<[Lanes; MIXES]>]) {
        for (panel, totals) in panels.iter().zip(self.total.chunks_exact(self.groups * GROUP * E::PANEL)) {
            for (seat, key) in panel.seats.iter().enumerate() {
                for (made, totals) in made[*key].iter_mut().zip(totals.chunks_exact(GROUP * E::PANEL)) {
                    for (lane, row) in totals.chunks_exact(E::PANEL).enumerate() {
                        for output in 0..MIXES {
                            made[output][lane] = row[seat * MIXES + output].into();
                        }
                    }
                }
            }
        }
    }
}

vectorised! {
    /// Brings a stretch of streams into the widths that the kernels read.
    Load<'a, T: Stored> { from: &'a [T], wide: &'a mut [f64], narrow: &'a mut [f32] } |_| -> () {
        widen(from, wide);
        narrow.iter_mut().zip(from).for_each(|(to, from)| *to = from.narrow());
    }
}

vectorised! {
    /// Adds the squares of a stretch, token by token in ascending order.
    AddSquares<'a> { x: &'a [f64], squares: &'a mut Lanes } |_| -> () {
        let (x, _) = x.as_chunks::<GROUP>();
        let mut sums = *squares;
        for x in x {
            for lane in 0..GROUP {
                sums[lane] += x[lane] * x[lane];
            }
        }
        *squares = sums;
    }
}
