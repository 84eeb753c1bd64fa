//! New streams out of the old ones and the sublayer's output.
//!
//! Responsible for the combination of a group of tokens, in the oracle's order, and for how far what
//! is stored lies from it. Not responsible for coefficients.

use pulp::Simd;

use crate::kernel::oracle::hyper::STREAMS;
use crate::kernel::sites::coefficients::Mixed;
use crate::kernel::sites::group::{GROUP, Lanes, Stored, vectorised, widen};
use crate::kernel::sites::sums::PartLanes;

/// Channels that are worked on at a time, so that they stay in the first cache.
pub(super) const CHANNELS: usize = 64;

/// A stretch of channels of eight tokens.
type Stretch = [f64; CHANNELS * GROUP];

vectorised! {
    /// Puts the new streams in the place of the old, `[4 * width][8]`; `output` is `[width][8]`.
    Advance<'a, T: Stored> { streams: &'a mut [T], output: &'a [f64], mixed: &'a Mixed } |simd| -> PartLanes {
        let width = output.len() / GROUP;
        let mut sums = PartLanes::default();
        let mut old: [Stretch; STREAMS] = [[0.0; CHANNELS * GROUP]; STREAMS];
        let (mut right, mut got): (Stretch, Stretch) = ([0.0; CHANNELS * GROUP], [0.0; CHANNELS * GROUP]);
        for (part, f) in output.chunks(CHANNELS * GROUP).enumerate() {
            let at = |stream: usize| (stream * width + part * CHANNELS) * GROUP;
            for (stream, old) in old.iter_mut().enumerate() {
                widen(&streams[at(stream)..][..f.len()], old);
            }
            for k in 0..STREAMS {
                combine(simd, &mixed.new_stream(k), f, &old, &mut right);
                let new = &mut streams[at(k)..][..f.len()];
                for (to, from) in new.iter_mut().zip(&right) {
                    *to = T::keep(*from);
                }
                widen(new, &mut got);
                compare(&got[..f.len()], &right, &mut sums);
            }
        }
        for lane in 0..GROUP {
            sums.along[lane] = (sums.got[lane] - sums.right[lane] - sums.off[lane]) / 2.0;
        }
        sums
    }
}

/// `post_k f + sum_j comb_jk x_j`, the sum in ascending order, for coefficients in the order of f, x.
#[inline(always)]
fn combine<S: Simd>(
    simd: S,
    coefficients: &[Lanes; 1 + STREAMS],
    f: &[f64],
    old: &[Stretch; STREAMS],
    new: &mut Stretch,
) {
    let size = f.len() / S::F64_LANES;
    let f = &S::as_simd_f64s(f).0[..size];
    let [x0, x1, x2, x3] = old.each_ref().map(|x| &S::as_simd_f64s(x).0[..size]);
    let new = &mut S::as_mut_simd_f64s(new).0[..size];
    // A group is one widest vector, or several narrower ones.
    let vectors = GROUP / S::F64_LANES;
    for part in 0..vectors {
        let [post, c0, c1, c2, c3] = coefficients.each_ref().map(|c| S::as_simd_f64s(c).0[part]);
        for i in (part..size).step_by(vectors) {
            let kept = simd.mul_f64s(c0, x0[i]);
            let kept = simd.add_f64s(kept, simd.mul_f64s(c1, x1[i]));
            let kept = simd.add_f64s(kept, simd.mul_f64s(c2, x2[i]));
            let kept = simd.add_f64s(kept, simd.mul_f64s(c3, x3[i]));
            new[i] = simd.add_f64s(simd.mul_f64s(post, f[i]), kept);
        }
    }
}

#[inline(always)]
fn compare(got: &[f64], right: &Stretch, sums: &mut PartLanes) {
    let (got, _) = got.as_chunks::<GROUP>();
    let (right, _) = right.as_chunks::<GROUP>();
    let (mut of_off, mut of_right, mut of_got): (Lanes, Lanes, Lanes) = (sums.off, sums.right, sums.got);
    for (got, right) in got.iter().zip(right) {
        for lane in 0..GROUP {
            let off = got[lane] - right[lane];
            of_off[lane] += off * off;
            of_right[lane] += right[lane] * right[lane];
            of_got[lane] += got[lane] * got[lane];
        }
    }
    (sums.off, sums.right, sums.got) = (of_off, of_right, of_got);
}
