//! The mixing of the hyper-connections at the model's real size: 86 sites, streams of 4 x 4096.
//!
//! Responsible for measuring candidates of `mhc-mix` on weights that are too large to hold all at
//! once, one site in memory at a time, fast enough to be run on a whim. The same test on the lab's
//! model, with its decisions, is [`crate::kernel::mhc`]; what the numbers mean is
//! [`crate::kernel::judge`].
//!
//! # What is measured
//! **Alone**: a chain of reference streams passes all sites. At each site every arithmetic gets the
//! reference's streams x (values of bf16, as the model stores them) and the reference's sublayer
//! output f; compared are its mixes, combination matrix, site input y and new streams with those of
//! f64, before they are rounded. The reference's new streams, rounded to bf16, enter the next site,
//! unless others were recorded there; what that rounding alone does is the floor of the site. See
//! [`alone`].
//!
//! **Compounded**: every arithmetic has a chain of its own. See [`compounded`].
//!
//! # What is not
//! No token is chosen and no expert: there is no model around the sites, so nothing here says
//! whether a decision flips. The sublayer's output does not answer to a changed site input: an error
//! of y is measured and goes no further.

#![expect(clippy::inline_always, reason = "a helper that is not inlined loses the vector instructions of its caller")]

mod advance;
pub mod alone;
mod block;
mod coefficients;
pub mod compounded;
mod gram;
mod group;
mod moved;
mod outside;
mod plan;
mod product;
pub mod recorded;
mod rounded;
mod sublayer;
pub mod sums;
pub mod swept;
pub mod synthetic;

use half::bf16;

use crate::engine::procedure::Failure;
use crate::kernel::oracle::hyper::MIXES;

pub use group::GROUP;
pub use rounded::round_slice;

/// Weights of one site as the checkpoint stores them.
#[derive(Clone, Debug, PartialEq)]
pub struct SiteWeights {
    /// `fn`, `[24, 4 * width]` in C order.
    pub mixing: Vec<f32>,
    /// Scales of `pre`, `post` and the combination.
    pub scale: [f32; 3],
    /// Offsets of the 24 mixes.
    pub base: [f32; MIXES],
}

/// Weights of all sites, one at a time: a checkpoint's reader, or [`synthetic::Synthetic`].
pub trait Sites: Sync {
    /// Number of sites.
    fn count(&self) -> usize;

    /// Width of one stream.
    fn width(&self) -> usize;

    /// Weights of one site.
    ///
    /// # Errors
    /// They cannot be read.
    fn weights(&self, site: usize) -> Result<SiteWeights, Failure>;
}

/// What flows through the sites. Eight tokens lie side by side: an array of them is `[channels][8]`.
pub trait Activations: Sync {
    /// Number of tokens, a multiple of eight.
    fn tokens(&self) -> usize;

    /// Makes ready what flows at a site; asked before anything else of that site is.
    ///
    /// # Errors
    /// It cannot be read.
    fn at_site(&self, _site: usize) -> Result<(), Failure> {
        Ok(())
    }

    /// Puts the streams of eight tokens that enter the site that was made ready in the place of those that the reference
    /// brought there, `[4 * width][8]`; false where no others are known.
    fn entering(&self, _token: usize, _streams: &mut [bf16]) -> bool {
        false
    }

    /// The four streams of eight tokens before the first site, `[4 * width][8]`; they are rounded to
    /// bf16 by whoever stores them so.
    fn first(&self, token: usize, streams: &mut [f64]);

    /// The sublayer's output at a site for eight tokens and the channels from `channel` on,
    /// `[channels][8]`, values of bf16. `mean` is the mean of the reference's four streams there.
    fn output(&self, site: usize, token: usize, channel: usize, mean: &[f64], output: &mut [f64]);
}

/// Names of `fn`, scale and base of a site in a checkpoint of DeepSeek-V4: two sites a layer.
pub fn tensor_names(site: usize) -> [String; 3] {
    let part = if site.is_multiple_of(2) { "attn" } else { "ffn" };
    ["fn", "scale", "base"].map(|tensor| format!("layers.{}.hc_{part}_{tensor}", site / 2))
}

/// What a site is called in figures.
pub fn site_label(site: usize) -> String {
    format!("layer {} {}", site / 2, if site.is_multiple_of(2) { "attention" } else { "ffn" })
}

/// What each site is called, in order.
pub fn site_labels(sites: &dyn Sites) -> Vec<String> {
    (0..sites.count()).map(site_label).collect()
}

/// The weights of a site, if they have the shapes that they must have.
pub(in crate::kernel) fn checked(sites: &dyn Sites, site: usize) -> Result<SiteWeights, Failure> {
    let weights = sites.weights(site)?;
    let needed = MIXES * 4 * sites.width();
    if weights.mixing.len() == needed {
        return Ok(weights);
    }
    let found = weights.mixing.len();
    Err(Failure::new(format!("`fn` of {} has {found} values where {needed} are needed", site_label(site)))
        .hint("`fn` is [24, 4 * hidden_size]; compare hidden_size with the checkpoint's config.json"))
}
