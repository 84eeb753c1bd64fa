//! The products of one site made outside this program: by kernels on a card, or by a command.
//!
//! Responsible for handing streams over and taking products back in the layout of this module. Not
//! responsible for what becomes of them.

use rayon::prelude::*;

use crate::engine::procedure::Failure;
use crate::kernel::candidate::Candidate;
use crate::kernel::mhc::site;
use crate::kernel::oracle::EPS;
use crate::kernel::oracle::hyper::MIXES;
use crate::kernel::sites::group::{GROUP, Lanes, Stored};
use crate::kernel::task::{Outside, Task};
use crate::kernel::tensors::{Data, Tensor};

/// A kernel's inverse root mean square may differ by so much from that of f64; more is a fault of it.
const ROOT: f64 = 1e-5;

/// The products of a candidate, by group.
pub(super) type Groups = Vec<[Lanes; MIXES]>;

/// A site as it is handed over.
pub(super) struct Handed {
    pub(super) task: Task,
    /// The root mean square of each token, with eps, in f64.
    roots: Vec<f64>,
}

/// A site with all its tokens: `mixing` is `[24, inner]`, `streams` is `[groups][inner][8]`.
pub(super) fn handed<T: Stored>(mixing: &[f32], streams: &[T]) -> Handed {
    let inner = mixing.len() / MIXES;
    let mut rows = vec![0.0_f32; streams.len()];
    rows.par_chunks_mut(inner * GROUP).zip(streams.par_chunks(inner * GROUP)).for_each(|(rows, group)| {
        for (channel, lanes) in group.as_chunks::<GROUP>().0.iter().enumerate() {
            for (lane, value) in lanes.iter().enumerate() {
                rows[lane * inner + channel] = value.narrow();
            }
        }
    });
    let root = |token: &[f32]| {
        let squares: f64 = token.iter().map(|x| f64::from(*x).powi(2)).sum();
        (squares / inner as f64 + EPS).sqrt()
    };
    let roots = rows.par_chunks(inner).map(root).collect();
    let tensor =
        |name, rows, values, by_row| Tensor { name, shape: vec![rows, inner], data: Data::F32(values), by_row };
    let streams = tensor("streams", streams.len() / inner, rows, true);
    Handed { task: site::task(tensor("weight", MIXES, mixing.to_vec(), false), streams), roots }
}

/// The products that a candidate makes of it.
///
/// They will be divided by the root mean square of f64. Where the kernel's own root is another one, its
/// products are scaled by as much, so that this shows.
///
/// # Errors
/// It cannot be run.
pub(super) fn products(outside: &dyn Outside, candidate: &Candidate, site: &Handed) -> Result<Groups, Failure> {
    let outputs = outside.run(candidate, &site.task)?;
    let (products, inverse) = (outputs[0].numbers(), outputs[1].numbers());
    let factor = |(inverse, root): (&f64, &f64)| {
        let off = inverse * root;
        if (off - 1.0).abs() <= ROOT { 1.0 } else { off }
    };
    let factors: Vec<f64> = inverse.iter().zip(&site.roots).map(factor).collect();
    let group = |first: usize| {
        std::array::from_fn(|mix| {
            std::array::from_fn(|lane| products[(first + lane) * MIXES + mix] * factors[first + lane])
        })
    };
    Ok((0..site.task.rows).step_by(GROUP).map(group).collect())
}
