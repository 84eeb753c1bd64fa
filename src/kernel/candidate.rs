//! Candidates: how a kernel under suspicion does its arithmetic, as data.
//!
//! Responsible for the mixing of the hyper-connections with a candidate's rounding points, and for
//! the known-bad twins that prove a test can fail. Not responsible for judging the error.
//!
//! A candidate rounds in the mixing product alone; split, Sinkhorn and combination stay in f64, so
//! that its curve shows this product and nothing else.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::kernel::format::Rounding;
use crate::kernel::matrix::Matrix;
use crate::kernel::oracle::hyper::{Coefficients, MIXES, Site, split, transpose};
use crate::kernel::oracle::{EPS, inverse_rms};

/// A chain of rounding points through the mixing product.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Candidate {
    /// Name, such as `bf16`.
    pub name: String,
    /// One line: which real arithmetic it stands for.
    #[serde(default)]
    pub says: String,
    /// How `fn` is rounded before the product.
    #[serde(default)]
    pub weight: Rounding,
    /// How the streams are rounded before the product.
    #[serde(default)]
    pub activation: Rounding,
    /// What products and sums are held in.
    #[serde(default)]
    pub product_accumulate: Accumulate,
    /// How the product is rounded before it is divided by the root mean square.
    #[serde(default)]
    pub output: Rounding,
    /// What is wrong with it on purpose.
    #[serde(default)]
    pub fault: Fault,
}

/// What products and sums are held in: each product and each partial sum is rounded, in ascending
/// order of the inner index.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Accumulate {
    /// f64.
    #[default]
    F64,
    /// f32, as matrix units do.
    F32,
}

/// A deliberate mistake, which makes a twin of a good candidate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Fault {
    /// None.
    #[default]
    None,
    /// The combination sums over the second index.
    Transposed,
    /// `post` lacks its factor 2.
    PostFactorForgotten,
    /// The scales are applied twice.
    ScaleTwice,
    /// eps is added to the root, not under it.
    EpsMisplaced,
}

impl Candidate {
    fn new(name: &str, says: &str, [weight, activation, output]: [Rounding; 3]) -> Self {
        Self {
            name: name.into(),
            says: says.into(),
            weight,
            activation,
            product_accumulate: Accumulate::F32,
            output,
            fault: Fault::None,
        }
    }

    fn twin(name: &str, says: &str, fault: Fault) -> Self {
        let exact = Self::new(name, says, [Rounding::Exact; 3]);
        Self { product_accumulate: Accumulate::F64, fault, ..exact }
    }

    /// The relative error that the declared rounding can make in one product of `terms` terms,
    /// taking the errors of its rounding points as independent and those of a sum as a random walk.
    pub fn declared_unit(&self, terms: usize) -> f64 {
        let accumulate = match self.product_accumulate {
            Accumulate::F64 => Rounding::Exact,
            Accumulate::F32 => Rounding::F32,
        };
        let squares = [self.weight, self.activation, self.output].map(|r| r.unit().powi(2));
        (squares.iter().sum::<f64>() + terms as f64 * accumulate.unit().powi(2)).sqrt()
    }
}

/// The candidates of the mixing test.
pub fn candidates() -> Vec<Candidate> {
    use Rounding::{Bf16, F32, Tf32};
    vec![
        Candidate::new("fp32", "everything in f32", [F32, F32, F32]),
        Candidate::new("tf32", "operands in TF32, sums and output in f32", [Tf32, Tf32, F32]),
        Candidate::new("bf16-weights", "`fn` stored in bf16, sums and output in f32", [Bf16, F32, F32]),
        Candidate::new("bf16", "`fn`, streams and output in bf16, sums in f32", [Bf16, Bf16, Bf16]),
    ]
}

/// Known-bad twins in exact arithmetic: any deviation of theirs is their fault.
pub fn twins() -> Vec<Candidate> {
    vec![
        Candidate::twin("transposed", "the combination sums over the second index", Fault::Transposed),
        Candidate::twin("post-factor-forgotten", "`post` lacks its factor 2", Fault::PostFactorForgotten),
        Candidate::twin("scale-twice", "the scales are applied twice", Fault::ScaleTwice),
        Candidate::twin("eps-misplaced", "eps is added to the root, not under it", Fault::EpsMisplaced),
    ]
}

/// The mixes of every token of `streams` (`[tokens, 4 * width]`) by the candidate's arithmetic.
pub fn mixes(candidate: &Candidate, site: &Site, streams: &[f64]) -> Vec<[f64; MIXES]> {
    let width = site.rows.len() / MIXES;
    let rounded = |rule: Rounding, values: &[f64]| values.iter().map(|v| rule.round(*v)).collect::<Vec<f64>>();
    let weights = rounded(candidate.weight, &site.rows);
    let inputs = rounded(candidate.activation, streams);
    let products: Vec<f64> = match candidate.product_accumulate {
        Accumulate::F64 => Matrix::pack(&weights, MIXES, width).times(&inputs),
        Accumulate::F32 => {
            let products = Matrix::pack(&narrow(&weights), MIXES, width).times(&narrow(&inputs));
            products.into_iter().map(f64::from).collect()
        }
    };
    let (products, _) = products.as_chunks::<MIXES>();
    products
        .iter()
        .zip(streams.chunks_exact(width))
        .map(|(product, token)| {
            let scale = match candidate.fault {
                Fault::EpsMisplaced => misplaced_inverse_rms(token),
                _ => inverse_rms(token),
            };
            product.map(|p| candidate.output.round(p) * scale)
        })
        .collect()
}

/// The coefficients that a candidate makes of its mixes.
pub fn coefficients(candidate: &Candidate, site: &Site, mixes: &[[f64; MIXES]]) -> Vec<Coefficients> {
    let scale = match candidate.fault {
        Fault::ScaleTwice => site.scale.map(|s| s * s),
        _ => site.scale,
    };
    mixes
        .iter()
        .map(|m| {
            let right = split(m, scale, &site.base);
            match candidate.fault {
                Fault::Transposed => Coefficients { comb: transpose(&right.comb), ..right },
                Fault::PostFactorForgotten => Coefficients { post: right.post.map(|p| p / 2.0), ..right },
                Fault::None | Fault::ScaleTwice | Fault::EpsMisplaced => right,
            }
        })
        .collect()
}

fn misplaced_inverse_rms(v: &[f64]) -> f64 {
    let squares: f64 = v.iter().map(|x| x * x).sum();
    1.0 / ((squares / v.len() as f64).sqrt() + EPS)
}

fn narrow(values: &[f64]) -> Vec<f32> {
    values.iter().map(|v| *v as f32).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::oracle::hyper;

    fn site() -> Site {
        let rows: Vec<f64> = (0..MIXES * 16).map(|i| f64::from((i as f32 * 0.37).sin())).collect();
        Site {
            matrix: Matrix::pack(&rows, MIXES, 16),
            rows,
            scale: [0.7, 0.6, 0.5],
            base: std::array::from_fn(|i| i as f64 / 30.0 - 0.4),
        }
    }

    fn streams() -> Vec<f64> {
        (0..48).map(|i| f64::from((i as f32 * 0.91).cos())).collect()
    }

    fn exact() -> Candidate {
        Candidate::twin("exact", "", Fault::None)
    }

    #[test]
    fn without_rounding_a_candidate_is_the_oracle() {
        let (site, streams) = (site(), streams());
        let got = mixes(&exact(), &site, &streams);
        assert_eq!(got, hyper::mixes(&site, &streams));
        assert_eq!(coefficients(&exact(), &site, &got)[1], split(&got[1], site.scale, &site.base));
    }

    #[test]
    fn each_rounding_point_shows_alone() {
        let (site, streams) = (site(), streams());
        let right = mixes(&exact(), &site, &streams);
        let check = |candidate: Candidate| assert_ne!(mixes(&candidate, &site, &streams), right, "{candidate:?}");
        check(Candidate { weight: Rounding::Bf16, ..exact() });
        check(Candidate { activation: Rounding::Bf16, ..exact() });
        check(Candidate { output: Rounding::Bf16, ..exact() });
        check(Candidate { product_accumulate: Accumulate::F32, ..exact() });
    }

    #[test]
    fn the_output_is_rounded_before_the_root_mean_square() {
        let (site, streams) = (site(), streams());
        let got = mixes(&Candidate { output: Rounding::Bf16, ..exact() }, &site, &streams);
        let product: f64 = site.rows[..16].iter().zip(&streams).map(|(w, x)| w * x).sum();
        assert_eq!(got[0][0], Rounding::Bf16.round(product) * inverse_rms(&streams[..16]));
    }

    #[test]
    fn every_twin_changes_the_streams_and_only_its_own_part() {
        let (site, streams) = (site(), streams());
        let outcome = |c: &Candidate| coefficients(c, &site, &mixes(c, &site, &streams))[0];
        let right = outcome(&exact());
        for twin in twins() {
            let got = outcome(&twin);
            assert_ne!(got, right, "{}", twin.name);
            assert_eq!(got.comb == transpose(&right.comb), twin.fault == Fault::Transposed, "{}", twin.name);
        }
        assert_eq!(outcome(&twins()[1]).post.map(|p| p * 2.0), right.post);
    }

    #[test]
    fn a_new_suspicion_is_data() {
        let text = "name = \"f16-output\"\nweight = \"bf16\"\nproduct-accumulate = \"f32\"\noutput = \"f16\"";
        let candidate: Candidate = toml::from_str(text).unwrap();
        assert_eq!((candidate.activation, candidate.output), (Rounding::Exact, Rounding::F16));
        assert!(toml::from_str::<Candidate>("name = \"x\"\nwieght = \"bf16\"").is_err());
    }

    #[test]
    fn the_declared_unit_is_that_of_the_coarsest_point() {
        let unit = |name: &str| candidates().into_iter().find(|c| c.name == name).unwrap().declared_unit(512);
        assert!(unit("fp32") < unit("tf32") && unit("tf32") < unit("bf16-weights"));
        assert!((unit("bf16") / 0.5_f64.powi(8) - 3_f64.sqrt()).abs() < 1e-3);
        assert!(exact().declared_unit(512) < 1e-14);
    }
}
