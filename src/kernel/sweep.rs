//! Measures candidates of a microtest against its reference and its noise band.
//!
//! Responsible for what is run, in which order and on how many threads, and for the numbers.
//! Not responsible for what the numbers mean, which is [`crate::kernel::judge`].
//!
//! The **noise band** is made of right arithmetic only: the main part rounded as a right
//! implementation stores it, activations moved by one unit in the last place, other orders of the
//! sums, and the runs that a product of few rows is cut into.

use std::sync::atomic::{AtomicU64, Ordering};

use rayon::prelude::*;

use crate::engine::procedure::Failure;
use crate::kernel::candidate::{Accumulate, Candidate, Order};
use crate::kernel::format::{Rounding, Storage};
use crate::kernel::judge;
use crate::kernel::measure::{self, Unfit};
use crate::kernel::microtest::{Cases, KeptRow, KeptSets, Microtest, Outcome, PartValues};
use crate::kernel::report::{Heat, KernelRun, Row, Spread};
use crate::kernel::task::{Outside, Task};
use crate::kernel::tensors::Tensor;

/// The error at one point, or why there is none.
pub type PointError = Result<f64, Unfit>;

/// Somebody cancelled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cancelled;

impl From<Cancelled> for Failure {
    fn from(Cancelled: Cancelled) -> Self {
        Self::new("the microtest was cancelled before it ended")
    }
}

/// Counts points, tells the progress, and asks whether to go on.
#[expect(missing_debug_implementations, reason = "it holds the caller's functions")]
pub struct Ticker<'a> {
    done: AtomicU64,
    total: u64,
    progress: &'a (dyn Fn(u64, u64, &str) + Sync),
    cancelled: &'a (dyn Fn() -> bool + Sync),
}

impl<'a> Ticker<'a> {
    /// A ticker that expects `total` points.
    pub fn new(
        total: u64,
        progress: &'a (dyn Fn(u64, u64, &str) + Sync),
        cancelled: &'a (dyn Fn() -> bool + Sync),
    ) -> Self {
        Self { done: AtomicU64::new(0), total, progress, cancelled }
    }

    /// Whether somebody cancelled.
    pub fn is_cancelled(&self) -> bool {
        (self.cancelled)()
    }

    /// One more point of this phase is done.
    ///
    /// # Errors
    /// Somebody cancelled.
    pub fn tick(&self, phase: &str) -> Result<(), Cancelled> {
        if (self.cancelled)() {
            return Err(Cancelled);
        }
        let done = self.done.fetch_add(1, Ordering::Relaxed) + 1;
        (self.progress)(done, self.total, phase);
        Ok(())
    }
}

/// Errors of one part, point by point.
#[derive(Clone, Debug, PartialEq)]
pub struct PartErrors {
    /// Name of the part.
    pub name: &'static str,
    /// Relative L2 errors.
    pub rel_l2: Vec<PointError>,
    /// `1 - 2 sum(xy) / sum(x^2 + y^2)`; NaN where there is none.
    pub calc_diff: Vec<f64>,
}

/// What one arithmetic did at all points.
#[derive(Clone, Debug, PartialEq)]
pub struct Measured {
    /// Name of the candidate or of the member of the band.
    pub name: String,
    /// Its parts, the main one last.
    pub parts: Vec<PartErrors>,
    /// What it kept, the rows of all points after one another, without their scores.
    pub kept: Option<KeptSets>,
    /// The largest change of a score that decides; 0 where nothing is kept.
    pub largest_shift: f64,
}

impl Measured {
    /// The errors of the main part.
    pub fn main(&self) -> &[PointError] {
        self.parts.last().map_or(&[], |part| &part.rel_l2)
    }
}

/// A member of the noise band.
#[derive(Clone, Debug, PartialEq)]
pub struct BandMember {
    /// What it varies, in one line.
    pub says: String,
    /// What it did.
    pub measured: Measured,
}

/// One rounding point of a candidate alone.
#[derive(Clone, Debug, PartialEq)]
pub struct Alone {
    /// The point, or `sums`.
    pub point: String,
    /// What is done there.
    pub rounding: String,
    /// What it did.
    pub measured: Measured,
}

/// A candidate with each of its rounding points alone.
#[derive(Clone, Debug, PartialEq)]
pub struct Tried {
    /// The candidate.
    pub candidate: Candidate,
    /// What it did.
    pub measured: Measured,
    /// How the errors of the elements are spread, by part.
    pub spreads: Vec<Spread>,
    /// Errors of the main part by point and row.
    pub heat: Heat,
    /// Its points, each alone.
    pub alone: Vec<Alone>,
}

impl Tried {
    /// What a candidate did, without the spread of its elements.
    fn of(candidate: Candidate, measured: Measured, alone: Vec<Alone>) -> Self {
        Self { candidate, measured, spreads: Vec::new(), heat: Heat::default(), alone }
    }
}

/// Everything that was measured.
#[derive(Clone, Debug, PartialEq)]
pub struct Swept {
    /// What the reference kept, the rows of all points after one another.
    pub kept: Option<KeptSets>,
    /// The noise band.
    pub band: Vec<BandMember>,
    /// Candidates in their order.
    pub candidates: Vec<Tried>,
    /// Known-bad twins in their order.
    pub twins: Vec<Tried>,
    /// What each kernel of a card did at the largest case.
    pub kernels: Vec<KernelRun>,
    /// Candidates of the user's that could not be run, each with the reason.
    pub failed: Vec<String>,
    /// Split-k choices of a card's plain kernel that stray further than its rounding explains.
    pub astray: Vec<String>,
}

/// What a sweep has of its cases whatever runs the candidates.
#[expect(missing_debug_implementations, reason = "it holds the caller's references")]
pub struct Shared<'a, M: Microtest> {
    test: &'a M,
    cases: &'a Cases<M::Case>,
    candidates: &'a [Candidate],
    references: Vec<Outcome>,
    kept: Option<KeptSets>,
    band: Vec<BandMember>,
    /// Each candidate's points, each alone.
    alone: Vec<Vec<Alone>>,
    /// The cases as tensors, if some candidate is run outside.
    tasks: Vec<Task>,
}

/// How many points a sweep ticks off when candidates are run in so many places.
pub fn ticks(points: usize, candidates: &[Candidate], places: usize) -> u64 {
    (points * (1 + BAND + distinct_pieces(candidates).0.len() + places * candidates.len())) as u64
}

/// Measures candidates and twins (those with a fault) at all points, in this program or by `outside`.
///
/// # Errors
/// Somebody cancelled, or what runs outside failed.
pub fn sweep<M: Microtest>(
    test: &M,
    cases: &Cases<M::Case>,
    candidates: &[Candidate],
    outside: Option<&dyn Outside>,
    ticker: &Ticker<'_>,
) -> Result<Swept, Failure> {
    shared(test, cases, candidates, ticker)?.tried(outside, &|_| true, ticker)
}

/// Measures what does not depend on where candidates run: reference, noise band, causes.
///
/// # Errors
/// Somebody cancelled, or a candidate is to be run outside and the test has no form for that.
pub fn shared<'a, M: Microtest>(
    test: &'a M,
    cases: &'a Cases<M::Case>,
    candidates: &'a [Candidate],
    ticker: &Ticker<'_>,
) -> Result<Shared<'a, M>, Failure> {
    let references: Vec<Outcome> = cases
        .cases
        .par_iter()
        .map(|case| {
            ticker.tick("reference")?;
            Ok(test.reference(case))
        })
        .collect::<Result<_, Cancelled>>()?;
    let kept = join_sets(references.iter());
    let measure = |name: &str, outcome: &(dyn Fn(usize) -> Outcome + Sync)| {
        let points = (0..references.len()).into_par_iter().map(|point| {
            ticker.tick(name)?;
            Ok(outcome(point))
        });
        let outcomes = points.collect::<Result<Vec<Outcome>, Cancelled>>()?;
        Ok(compare(name, &pairs(&outcomes, &references), kept.as_ref()))
    };
    let run = |candidate: &Candidate, name: &str| measure(name, &|point| test.run(&cases.cases[point], candidate));
    let band = members(test.spec().name)
        .par_iter()
        .map(|member| {
            let (name, says) = (member.name(), member.says(test.spec().stored));
            let measured = match member {
                Vary::Stored => measure(&name, &|point| stored(&references[point], test.spec().stored)),
                Vary::Input(seed) => {
                    measure(&name, &|point| test.reference(&test.flipped(&cases.cases[point], seed + point as u64)))
                }
                Vary::Sums { candidate, .. } => run(candidate, &name),
            };
            Ok(BandMember { says, measured: measured? })
        })
        .collect::<Result<Vec<_>, Cancelled>>()?;
    let (distinct, alone_of) = distinct_pieces(candidates);
    let measured = distinct.par_iter().map(|piece| run(piece, "each point alone")).collect::<Result<Vec<_>, _>>()?;
    let alone = candidates.iter().zip(alone_of).map(|(candidate, of)| {
        let one = |(point, rounding, at): (String, String, usize)| Alone {
            point,
            rounding,
            measured: Measured { name: candidate.name.clone(), ..measured[at].clone() },
        };
        of.into_iter().map(one).collect()
    });
    let alone: Vec<Vec<Alone>> = alone.collect();
    let tasks = match candidates.iter().find(|c| c.is_outside()) {
        None => Vec::new(),
        Some(first) => {
            let tasks: Option<Vec<Task>> = cases.cases.par_iter().map(|case| test.task(case)).collect();
            tasks.ok_or_else(|| {
                let spec = test.spec().name;
                Failure::new(format!("candidate `{}`: `{spec}` cannot be run outside this program", first.name))
                    .hint("leave `cuda` and `command` out of it, and say where it rounds")
            })?
        }
    };
    Ok(Shared { test, cases, candidates, references, kept, band, alone, tasks })
}

impl<M: Microtest> Shared<'_, M> {
    /// Runs the candidates that `suits` lets pass, those with kernels or a command by `outside`.
    ///
    /// # Errors
    /// Somebody cancelled, or what runs outside failed.
    pub fn tried(
        &self,
        outside: Option<&dyn Outside>,
        suits: &(dyn Fn(&Candidate) -> bool + Sync),
        ticker: &Ticker<'_>,
    ) -> Result<Swept, Failure> {
        let tried = |(at, candidate): (usize, &Candidate)| {
            let name = &candidate.name;
            let outcomes = self.outcomes(candidate, outside, ticker)?;
            let pairs = pairs(&outcomes, &self.references);
            Ok(Tried {
                measured: compare(name, &pairs, self.kept.as_ref()),
                spreads: spreads(name, &pairs),
                heat: heat(name, &self.cases.labels, &pairs),
                alone: self.alone[at].clone(),
                candidate: candidate.clone(),
            })
        };
        let suited = self.candidates.iter().enumerate().filter(|(_, c)| suits(c));
        let (outer, inner): (Vec<_>, Vec<_>) = suited.partition(|(_, c)| c.is_outside());
        let inner = inner.into_par_iter().map(tried).collect::<Result<Vec<Tried>, Failure>>()?;
        // One thing after another: a card or a command has no use for several at once.
        let (mut ran, mut failed) = (Vec::new(), Vec::new());
        for (at, candidate) in outer {
            match tried((at, candidate)) {
                Ok(tried) => ran.push(tried),
                // What a user brought does not take the built-in kernels down with it.
                Err(failure) if candidate.is_brought() && !ticker.is_cancelled() => failed.push(failure.message),
                Err(failure) => return Err(failure),
            }
        }
        let (twins, candidates): (Vec<Tried>, Vec<Tried>) =
            inner.into_iter().chain(ran).partition(|t| t.candidate.fault.is_some());
        let (own, astray) = self.band_of(outside, suits)?;
        let band = self.band.iter().cloned().chain(own).collect();
        let kernels = self.kernels(outside, &|c| suits(c) && !c.is_brought())?;
        Ok(Swept { kept: self.kept.clone(), band, candidates, twins, kernels, failed, astray })
    }

    fn outcomes(
        &self,
        candidate: &Candidate,
        outside: Option<&dyn Outside>,
        ticker: &Ticker<'_>,
    ) -> Result<Vec<Outcome>, Failure> {
        let cases = &self.cases.cases;
        if !candidate.is_outside() {
            let points = cases.par_iter().map(|case| {
                ticker.tick(&candidate.name)?;
                Ok(self.test.run(case, candidate))
            });
            return Ok(points.collect::<Result<_, Cancelled>>()?);
        }
        let outside = outside.ok_or_else(|| Failure::new(format!("nothing here runs `{}`", candidate.name)))?;
        let outputs = if candidate.command.is_some() {
            let outputs = outside.run_all(candidate, &self.tasks)?;
            cases.iter().try_for_each(|_| ticker.tick(&candidate.name))?;
            outputs
        } else {
            let run = |task: &Task| {
                ticker.tick(&candidate.name)?;
                outside.run(candidate, task)
            };
            self.tasks.iter().map(run).collect::<Result<Vec<_>, Failure>>()?
        };
        let read = |(case, outputs): (&M::Case, &Vec<Tensor>)| self.test.read(case, candidate, outputs);
        Ok(cases.iter().zip(&outputs).map(read).collect())
    }

    /// Split-k choices of the first kernel, which is the right arithmetic of its source.
    fn band_of(
        &self,
        outside: Option<&dyn Outside>,
        suits: &(dyn Fn(&Candidate) -> bool + Sync),
    ) -> Result<(Vec<BandMember>, Vec<String>), Failure> {
        let none = (Vec::new(), Vec::new());
        let first = self.candidates.iter().find(|c| c.fault.is_none() && suits(c));
        let (Some(outside), Some(first)) = (outside, first) else {
            return Ok(none);
        };
        let cuts = |launch: &crate::kernel::outside::Launch| launch.grid.iter().any(|(extent, _)| extent == "splits");
        if !first.cuda.as_ref().is_some_and(|cuda| cuda.launch.iter().any(cuts)) {
            return Ok(none);
        }
        let member = |splits: usize| {
            let candidate = Candidate { accumulate: Accumulate { splits, ..first.accumulate }, ..first.clone() };
            let run = |(case, task): (&M::Case, &Task)| -> Result<Outcome, Failure> {
                Ok(self.test.read(case, &candidate, &outside.run(&candidate, task)?))
            };
            let outcomes = self.cases.cases.iter().zip(&self.tasks).map(run).collect::<Result<Vec<_>, _>>()?;
            let name = format!("card-{splits}-runs");
            let measured = compare(&name, &pairs(&outcomes, &self.references), self.kept.as_ref());
            let says = format!("`{}` on the card, sums cut into {splits} runs", first.name);
            Ok::<_, Failure>((candidate, BandMember { says, measured }))
        };
        let mut members = Vec::new();
        let mut astray = Vec::new();
        let at = self.candidates.iter().position(|c| c == first).unwrap_or_default();
        for splits in CARD_SPLITS {
            let (candidate, member) = member(splits)?;
            let tried = Tried::of(candidate, member.measured.clone(), self.alone[at].clone());
            // What is not the function must not raise the floor that all others are judged by.
            match judge::not_the_function(&tried, &self.cases.labels) {
                Some(why) => astray.push(format!("{}: {why}", member.measured.name)),
                None => members.push(member),
            }
        }
        Ok((members, astray))
    }

    /// Bits and times at the case with the most to do.
    fn kernels(
        &self,
        outside: Option<&dyn Outside>,
        suits: &(dyn Fn(&Candidate) -> bool + Sync),
    ) -> Result<Vec<KernelRun>, Failure> {
        let largest = (0..self.tasks.len()).max_by(|a, b| self.tasks[*a].flops.total_cmp(&self.tasks[*b].flops));
        let (Some(outside), Some(at)) = (outside, largest) else { return Ok(Vec::new()) };
        let mut kernels = Vec::new();
        for candidate in self.candidates.iter().filter(|c| c.cuda.is_some() && c.fault.is_none() && suits(c)) {
            let run = outside.measure(candidate, &self.tasks[at])?;
            kernels.extend(run.map(|run| KernelRun { case: self.cases.labels[at].clone(), ..run }));
        }
        Ok(kernels)
    }
}

/// Into how many runs a card's own members of the band cut their sums.
const CARD_SPLITS: [usize; 3] = [1, 4, 16];

/// The rounding points of a candidate, each alone: point, what is done, and the candidate with it.
pub(super) fn pieces(candidate: &Candidate) -> Vec<(String, String, Candidate)> {
    let exact = Storage::default();
    let mut pieces: Vec<_> = candidate
        .round
        .iter()
        .filter(|(_, storage)| **storage != exact)
        .map(|(point, storage)| (point.clone(), storage.word(), candidate.only(point)))
        .collect();
    if candidate.accumulate.dtype != Rounding::Exact {
        pieces.push(("sums".into(), candidate.accumulate.words(), candidate.only_sums()));
    }
    pieces
}

/// A rounding point of a candidate: its name, what is done there, and which distinct piece it is.
type Point = (String, String, usize);

/// The distinct pieces of candidates, and of each candidate its points.
///
/// Candidates that round alike at a point, such as the same kernel with other splits, share what it does alone.
fn distinct_pieces(candidates: &[Candidate]) -> (Vec<Candidate>, Vec<Vec<Point>>) {
    let mut distinct: Vec<Candidate> = Vec::new();
    let mut at = |piece: Candidate| {
        let piece = Candidate { name: String::new(), says: String::new(), ..piece };
        distinct.iter().position(|known| *known == piece).unwrap_or_else(|| {
            distinct.push(piece);
            distinct.len() - 1
        })
    };
    let of = |candidate: &Candidate| -> Vec<Point> {
        pieces(candidate).into_iter().map(|(point, rounding, piece)| (point, rounding, at(piece))).collect()
    };
    let points = candidates.iter().map(of).collect();
    (distinct, points)
}

/// Number of members of a band.
const BAND: usize = 7;

enum Vary {
    Stored,
    Input(u64),
    Sums { name: &'static str, says: &'static str, candidate: Box<Candidate> },
}

/// A product of few rows is cut along its inner index so that 16 tiles of 16 rows are at work.
pub(super) const SPLITS: [(&str, &str, usize); 3] = [
    ("batch-1-to-16", "f32 sums as for 1, 4, 8 or 16 rows: 16 runs", 16),
    ("batch-17", "f32 sums as for 17 rows: 8 runs", 8),
    ("batch-64", "f32 sums as for 64 rows: 4 runs", 4),
];

fn members(spec: &str) -> Vec<Vary> {
    let sums = |name, says, accumulate| Vary::Sums {
        name,
        says,
        candidate: Box::new(Candidate { accumulate, ..Candidate::exact(spec) }),
    };
    let ordered = |order| Accumulate { order, ..Accumulate::f32(1) };
    let mut members = vec![
        Vary::Stored,
        Vary::Input(1),
        sums("descending", "f32 sums from the last term to the first", ordered(Order::Descending)),
        sums("pairwise", "f32 sums by halves", ordered(Order::Pairwise)),
    ];
    members.extend(SPLITS.map(|(name, says, splits)| sums(name, says, Accumulate::f32(splits))));
    debug_assert_eq!(members.len(), BAND);
    members
}

impl Vary {
    fn name(&self) -> String {
        match self {
            Self::Stored => "stored".into(),
            Self::Input(_) => "input-ulp".into(),
            Self::Sums { name, .. } => (*name).into(),
        }
    }

    fn says(&self, stored: Rounding) -> String {
        match self {
            Self::Stored => format!("the reference's own result, stored in {}", stored.word()),
            Self::Input(_) => "one activation in eight moved by one unit in the last place of bf16".into(),
            Self::Sums { says, .. } => (*says).into(),
        }
    }
}

fn stored(reference: &Outcome, rule: Rounding) -> Outcome {
    let mut outcome = reference.clone();
    if let Some(main) = outcome.parts.last_mut() {
        main.values = Storage::Element(rule).store(&main.values, main.columns);
    }
    outcome
}

/// What was got at each point beside the reference there.
type Pairs<'a> = [(&'a Outcome, &'a Outcome)];

fn pairs<'a>(got: &'a [Outcome], references: &'a [Outcome]) -> Vec<(&'a Outcome, &'a Outcome)> {
    got.iter().zip(references).collect()
}

/// The values of one part at all points, those of the reference second.
fn part_of<'a>(pairs: &Pairs<'a>, part: usize) -> impl Iterator<Item = (&'a PartValues, &'a PartValues)> {
    pairs.iter().map(move |(got, right)| (&got.parts[part], &right.parts[part]))
}

fn parts_in(pairs: &Pairs<'_>) -> usize {
    pairs.first().map_or(0, |(_, reference)| reference.parts.len())
}

/// `reference_kept` is what the reference kept, the rows of all points after one another.
fn compare(name: &str, pairs: &Pairs<'_>, reference_kept: Option<&KeptSets>) -> Measured {
    let parts = (0..parts_in(pairs))
        .map(|part| PartErrors {
            name: pairs[0].1.parts[part].name,
            rel_l2: part_of(pairs, part).map(|(got, right)| measure::rel_l2(&got.values, &right.values)).collect(),
            calc_diff: part_of(pairs, part)
                .map(|(got, right)| measure::calc_diff(&got.values, &right.values))
                .collect(),
        })
        .collect();
    let kept = join_sets(pairs.iter().map(|(got, _)| *got));
    let largest_shift = match (&kept, reference_kept) {
        (Some(got), Some(right)) => measure::largest_shift(got, right),
        _ => 0.0,
    };
    Measured { name: name.into(), parts, kept: kept.map(without_scores), largest_shift }
}

fn spreads(name: &str, pairs: &Pairs<'_>) -> Vec<Spread> {
    let spread = |part: usize| {
        let (mut got, mut right) = (Vec::new(), Vec::new());
        for (of_got, of_right) in part_of(pairs, part) {
            got.extend_from_slice(&of_got.values);
            right.extend_from_slice(&of_right.values);
        }
        measure::spread(name, pairs[0].1.parts[part].name, &got, &right)
    };
    (0..parts_in(pairs)).map(spread).collect()
}

/// Columns of a heat map; more rows than these share a column.
const COLUMNS: usize = 64;

fn heat(name: &str, labels: &[String], pairs: &Pairs<'_>) -> Heat {
    let rows_of = |values: &PartValues| values.values.len() / values.columns.max(1);
    let mains: Vec<(&PartValues, &PartValues)> =
        pairs.iter().filter_map(|(got, right)| Some((got.parts.last()?, right.parts.last()?))).collect();
    let rows = mains.iter().map(|(_, right)| rows_of(right)).max().unwrap_or(0);
    let wide = rows.div_ceil(COLUMNS).max(1);
    let columns: Vec<u64> = (0..rows).step_by(wide).map(|row| row as u64).collect();
    let values = mains
        .iter()
        .map(|(got, right)| {
            let errors: Vec<f64> = got
                .values
                .chunks_exact(right.columns.max(1))
                .zip(right.values.chunks_exact(right.columns.max(1)))
                .map(|(got, right)| measure::relative(got, right))
                .collect();
            // NaN stands for itself: it must not vanish beside a number.
            let worst = |run: &[f64]| run.iter().copied().reduce(|a, b| if a.is_nan() || a > b { a } else { b });
            let mut line: Vec<f64> = errors.chunks(wide).filter_map(worst).map(three_digits).collect();
            line.resize(columns.len(), f64::NAN);
            Row(line)
        })
        .collect();
    Heat { candidate: name.into(), lines: labels.to_vec(), column: "row".into(), columns, values }
}

pub(super) fn three_digits(value: f64) -> f64 {
    format!("{value:.2e}").parse().unwrap_or(value)
}

/// The sets of all points after one another; `None` if one point has none.
fn join_sets<'a>(outcomes: impl Iterator<Item = &'a Outcome>) -> Option<KeptSets> {
    let all: Vec<&KeptSets> = outcomes.map(|o| o.sets.as_ref()).collect::<Option<_>>()?;
    let rows = all.iter().flat_map(|sets| sets.rows.iter().cloned()).collect();
    Some(KeptSets { kind: all.first()?.kind, rows })
}

fn without_scores(sets: KeptSets) -> KeptSets {
    let rows = sets.rows.into_iter().map(|row| KeptRow { scores: Vec::new(), ..row }).collect();
    KeptSets { rows, ..sets }
}
