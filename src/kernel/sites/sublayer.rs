//! The sublayer's output for a group of tokens, and what is needed of it and of the streams.
//!
//! Responsible for asking for the output and for the Gram matrices, in one pass over the streams.

use pulp::Arch;

use crate::kernel::oracle::hyper::STREAMS;
use crate::kernel::sites::Activations;
use crate::kernel::sites::advance::CHANNELS;
use crate::kernel::sites::gram::Gram;
use crate::kernel::sites::group::{GROUP, Stored, vectorised, widen};

/// Fills `output`, `[width][8]`, for eight tokens from `token` on, and gives the Gram matrices of it
/// and of the streams, `[4 * width][8]`.
pub(super) fn sublayer<T: Stored>(
    activations: &dyn Activations,
    site: usize,
    token: usize,
    streams: &[T],
    output: &mut [f64],
) -> Gram {
    let arch = Arch::new();
    let width = streams.len() / STREAMS / GROUP;
    let mut gram = Gram::default();
    let mut wide = [[0.0; CHANNELS * GROUP]; STREAMS];
    let mut mean = [0.0; CHANNELS * GROUP];
    for (part, output) in output.chunks_mut(CHANNELS * GROUP).enumerate() {
        let (channel, size) = (part * CHANNELS, output.len());
        arch.dispatch(Take { streams, width, channel, size, wide: &mut wide, mean: &mut mean });
        activations.output(site, token, channel, &mean[..size], output);
        let [x0, x1, x2, x3] = wide.each_ref().map(|x| &x[..size]);
        arch.dispatch(AddGram { gram: &mut gram, vectors: [output, x0, x1, x2, x3] });
    }
    gram
}

vectorised! {
    /// Widens a stretch of channels of the four streams, and takes their mean.
    Take<'a, T: Stored> {
        streams: &'a [T],
        width: usize,
        channel: usize,
        size: usize,
        wide: &'a mut [[f64; CHANNELS * GROUP]; STREAMS],
        mean: &'a mut [f64; CHANNELS * GROUP],
    } |_| -> () {
        for (stream, wide) in wide.iter_mut().enumerate() {
            widen(&streams[(stream * width + channel) * GROUP..][..size], wide);
        }
        let [x0, x1, x2, x3] = wide;
        for i in 0..CHANNELS * GROUP {
            mean[i] = (x0[i] + x1[i] + x2[i] + x3[i]) / STREAMS as f64;
        }
    }
}

vectorised! {
    /// Adds a stretch of channels to the Gram matrices.
    AddGram<'a> { gram: &'a mut Gram, vectors: [&'a [f64]; 1 + STREAMS] } |_| -> () {
        gram.add(vectors);
    }
}
