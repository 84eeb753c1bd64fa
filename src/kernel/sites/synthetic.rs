//! Weights and activations of the real size out of a seed.
//!
//! Responsible for inputs that are the same bits in every run and have the shape that [`Synthetic::says`]
//! states. Not responsible for being those of a trained model, which nothing synthetic is.

use pulp::Arch;
use rand::{RngExt as _, SeedableRng as _};
use rand_pcg::Pcg64;

use crate::engine::procedure::Failure;
use crate::kernel::oracle::hyper::{MIXES, STREAMS};
use crate::kernel::sites::group::{GROUP, Stored, vectorised};
use crate::kernel::sites::{Activations, SiteWeights, Sites};

/// Share of the mean of the streams that a sublayer takes back, so that streams neither grow over
/// 86 sites nor become alike.
const TAKEN_BACK: f64 = 0.85;
/// Scales of `pre`, `post` and the combination.
const SCALE: [f32; 3] = [1.0, 1.0, 1.2];
/// Standard deviation of the offsets of the mixes.
const BASE: f64 = 0.2;
/// Channels that are 20 to 60 times larger at every token.
const OUTLIERS: usize = 6;
/// Channels that are huge at two tokens, and how huge.
const MASSIVE: usize = 3;
const HUGE: f32 = 300.0;
/// Vectors of eight in the pool of activations, and numbers in the pool of weights.
const POOL: usize = 1 << 16;
const WEIGHT_POOL: usize = 1 << 20;
/// Odd, so that windows of a pool start at distinct places.
const STRIDE: usize = 40_503;
const WEIGHT_STRIDE: usize = 648_391;

/// Inputs of a given size.
#[derive(Clone, Debug)]
pub struct Synthetic {
    count: usize,
    width: usize,
    tokens: usize,
    seed: u64,
    arch: Arch,
    /// Normal numbers; a row of `fn` is a window of it.
    weights: Vec<f32>,
    /// Normal numbers, eight tokens side by side; an output is a window of it.
    normal: Vec<f32>,
    /// How large each channel is.
    gains: Vec<f32>,
    massive: Vec<usize>,
}

impl Synthetic {
    /// `count` sites with streams of `width` channels, and `tokens` tokens, a multiple of eight.
    pub fn new(count: usize, width: usize, tokens: usize, seed: u64) -> Self {
        assert!(tokens.is_multiple_of(GROUP), "tokens come in groups of eight");
        let mut random = Pcg64::seed_from_u64(seed);
        let weights = normals(&mut random, WEIGHT_POOL + STREAMS * width);
        let normal = normals(&mut random, (POOL + STREAMS * width) * GROUP);
        let mut gains = vec![1.0; width];
        for _ in 0..OUTLIERS.min(width / 8) {
            gains[random.random_range(0..width)] = random.random_range(20.0..60.0);
        }
        let massive = (0..MASSIVE.min(width / 8)).map(|_| random.random_range(0..width)).collect();
        Self { count, width, tokens, seed, arch: Arch::new(), weights, normal, gains, massive }
    }

    /// The size of DeepSeek-V4-Flash: 86 sites, streams of 4,096 channels, 256 tokens.
    pub fn flash(seed: u64) -> Self {
        Self::new(86, 4096, 256, seed)
    }

    /// What the inputs are like, in one sentence.
    pub fn says(&self) -> String {
        format!(
            "synthetic, seed {}: `fn` normal with deviation 1/sqrt({}), scales {SCALE:?}, offsets normal with deviation \
             {BASE}; four distinct streams and sublayer outputs normal in bf16, {OUTLIERS} channels 20 to 60 times \
             larger, {MASSIVE} channels {HUGE} times larger at tokens 0 and {}, every sublayer takes back {TAKEN_BACK} \
             of the mean of the streams",
            self.seed,
            STREAMS * self.width,
            self.second_massive(),
        )
    }

    fn second_massive(&self) -> usize {
        self.tokens / 7
    }

    /// The huge channels of the stretch that starts at `channel`, as places in a group's array.
    fn huge(&self, token: usize, channel: usize, channels: usize) -> impl Iterator<Item = usize> {
        let lanes = [0, self.second_massive()].into_iter().filter_map(move |massive| massive.checked_sub(token));
        lanes.filter(|lane| *lane < GROUP).flat_map(move |lane| {
            let inside = self.massive.iter().filter_map(move |c| c.checked_sub(channel));
            inside.filter(move |c| *c < channels).map(move |c| c * GROUP + lane)
        })
    }
}

impl Sites for Synthetic {
    fn count(&self) -> usize {
        self.count
    }

    fn width(&self) -> usize {
        self.width
    }

    fn weights(&self, site: usize) -> Result<SiteWeights, Failure> {
        let inner = STREAMS * self.width;
        let deviation = 1.0 / (inner as f32).sqrt();
        let mut mixing = Vec::with_capacity(MIXES * inner);
        for row in 0..MIXES {
            let start = (site * MIXES + row) * WEIGHT_STRIDE % WEIGHT_POOL;
            mixing.extend(self.weights[start..start + inner].iter().map(|w| w * deviation));
        }
        let mut random = Pcg64::new(u128::from(self.seed), site as u128);
        let base = normals(&mut random, MIXES);
        Ok(SiteWeights { mixing, scale: SCALE, base: std::array::from_fn(|i| base[i] * BASE as f32) })
    }
}

impl Activations for Synthetic {
    fn tokens(&self) -> usize {
        self.tokens
    }

    fn first(&self, token: usize, streams: &mut [f64]) {
        let start = token / GROUP * STRIDE % POOL;
        let values = &self.normal[start * GROUP..][..streams.len()];
        let gains = self.gains.iter().cycle();
        for ((to, from), gain) in streams.chunks_exact_mut(GROUP).zip(values.chunks_exact(GROUP)).zip(gains) {
            to.iter_mut().zip(from).for_each(|(to, from)| *to = f64::from(from * gain));
        }
        for stream in streams.chunks_exact_mut(self.width * GROUP) {
            self.huge(token, 0, self.width).for_each(|place| stream[place] *= f64::from(HUGE));
        }
    }

    fn output(&self, site: usize, token: usize, channel: usize, mean: &[f64], output: &mut [f64]) {
        let groups = self.tokens / GROUP;
        // The first windows are those of the streams before the first site.
        let start = ((site + 1) * groups + token / GROUP) * STRIDE % POOL + channel;
        let values = &self.normal[start * GROUP..][..output.len()];
        let gains = &self.gains[channel..channel + output.len() / GROUP];
        self.arch.dispatch(TakeBack { values, gains, mean, output });
        for place in self.huge(token, channel, gains.len()) {
            let value = f64::from(values[place] * gains[place / GROUP] * HUGE) - TAKEN_BACK * mean[place];
            output[place] = half::bf16::keep(value).wide();
        }
    }
}

vectorised! {
    /// Outputs of ordinary channels.
    TakeBack<'a> { values: &'a [f32], gains: &'a [f32], mean: &'a [f64], output: &'a mut [f64] } |_| -> () {
        let (values, _) = values.as_chunks::<GROUP>();
        let (mean, _) = mean.as_chunks::<GROUP>();
        let (output, _) = output.as_chunks_mut::<GROUP>();
        for (((to, from), mean), gain) in output.iter_mut().zip(values).zip(mean).zip(gains) {
            for lane in 0..GROUP {
                let value = f64::from(from[lane] * gain) - TAKEN_BACK * mean[lane];
                to[lane] = half::bf16::keep(value).wide();
            }
        }
    }
}

/// Normal numbers, by the method of Box and Muller.
fn normals(random: &mut Pcg64, count: usize) -> Vec<f32> {
    let mut numbers = Vec::with_capacity(count + 1);
    while numbers.len() < count {
        // One less a number from [0, 1) is never 0, whose logarithm there is not.
        let radius = (-2.0 * (1.0 - random.random::<f32>()).ln()).sqrt();
        let (sine, cosine) = (std::f32::consts::TAU * random.random::<f32>()).sin_cos();
        numbers.extend([radius * cosine, radius * sine]);
    }
    numbers.truncate(count);
    numbers
}
