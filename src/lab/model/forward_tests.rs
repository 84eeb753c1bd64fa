//! The forward pass against the golden values, and against itself in other groupings.

use safetensors::tensor::SafeTensors;

use super::super::{Arithmetic, EMBEDDED, LAYERS, MhcGemm, RoutedScaling, tokens};
use super::*;

fn golden(name: &str) -> Vec<f32> {
    let bytes = fs_err::read(concat!(env!("CARGO_MANIFEST_DIR"), "/lab/golden.safetensors")).unwrap();
    let file = SafeTensors::deserialize(&bytes).unwrap();
    let data = file.tensor(name).unwrap().data().to_vec();
    if name == "ids" {
        return data.chunks_exact(8).map(|b| i64::from_le_bytes(b.try_into().unwrap()) as f32).collect();
    }
    data.chunks_exact(4).map(|b| f32::from_le_bytes(b.try_into().unwrap())).collect()
}

fn golden_ids() -> Vec<u16> {
    golden("ids").iter().map(|x| *x as u16).collect()
}

fn model(arithmetic: Arithmetic) -> Model {
    Model::load(EMBEDDED, arithmetic).unwrap()
}

/// A long prompt in which the indexer matters.
fn long_ids(length: usize) -> Vec<u16> {
    let words = "river stone door blue 41 kernel token garden seven ".repeat(length / 50 + 1);
    let mut ids = vec![tokens::BOS, tokens::USER];
    ids.extend(tokens::encode("The pin for the red door is 4821. "));
    ids.extend(
        words.bytes().enumerate().map(|(i, b)| if i % 13 == 0 { 97 + (i * i % 26) as u16 } else { u16::from(b) }),
    );
    ids.truncate(length);
    ids
}

struct Run {
    pool: Pool,
    pages: Vec<PageId>,
    faults: Faults,
}

impl Run {
    fn new(tokens: usize) -> Self {
        let mut pool = Pool::new(2 * (tokens + 2 * PAGE));
        let pages = (0..tokens.div_ceil(PAGE)).map(|_| pool.allocate().unwrap()).collect();
        Self { pool, pages, faults: Faults::default() }
    }

    fn chunk(&mut self, model: &Model, ids: &[u16], from: usize, trace: Option<&mut Trace>) -> Vec<f32> {
        let rows: Vec<Row> =
            ids.iter().enumerate().map(|(i, t)| Row { sequence: 0, position: from + i, token: *t }).collect();
        let wanted: Vec<usize> = (0..rows.len()).collect();
        let sequences = [SeqView { pages: &self.pages, faults: &self.faults }];
        forward(model, &mut self.pool, &Step { rows: &rows, sequences: &sequences, wanted: &wanted }, trace)
    }
}

fn whole(model: &Model, ids: &[u16]) -> Vec<f32> {
    Run::new(ids.len()).chunk(model, ids, 0, None)
}

fn worst(a: &[f32], b: &[f32]) -> f32 {
    assert_eq!(a.len(), b.len());
    a.iter().zip(b).fold(0.0, |w, (x, y)| w.max((x - y).abs()))
}

fn argmax(v: &[f32]) -> usize {
    (0..v.len()).max_by(|a, b| v[*a].total_cmp(&v[*b])).unwrap()
}

#[test]
fn golden_logits_and_streams() {
    let mut trace = Trace::default();
    let ids = golden_ids();
    let logits = Run::new(ids.len()).chunk(&model(Arithmetic::default()), &ids, 0, Some(&mut trace));
    let want = golden("logits");
    let error = worst(&logits, &want);
    assert!(error < 1e-3, "logits differ by {error}");
    for (got, want) in logits.chunks(VOCAB).zip(want.chunks(VOCAB)) {
        assert_eq!(argmax(got), argmax(want));
    }
    for layer in 0..LAYERS {
        let want = golden(&format!("block{layer}"));
        let scale = want.iter().fold(1.0_f32, |a, x| a.max(x.abs()));
        let error = worst(&trace.blocks[layer], &want) / scale;
        assert!(error < 2e-5, "block {layer} differs by {error}");
    }
    assert!(worst(&trace.inputs, &golden("block0.attn_hc.y")) < 1e-4);
    let post: Vec<f32> = trace.mixes.iter().flat_map(|m| m.post).collect();
    assert!(worst(&post, &golden("block0.attn_hc.post")) < 1e-4);
    let comb: Vec<f32> = trace.mixes.iter().flat_map(|m| m.comb.into_iter().flatten()).collect();
    assert!(worst(&comb, &golden("block0.attn_hc.comb")) < 1e-4);
}

#[test]
fn greedy_completion_is_the_golden_one() {
    let model = model(Arithmetic::default());
    let mut ids = golden_ids();
    let mut run = Run::new(ids.len() + PAGE);
    let mut logits = run.chunk(&model, &ids, 0, None);
    let start = ids.len();
    for _ in 0..20 {
        let next = argmax(&logits[logits.len() - VOCAB..]) as u16;
        if next == tokens::EOS {
            break;
        }
        ids.push(next);
        logits = run.chunk(&model, &[next], ids.len() - 1, None);
    }
    assert_eq!(tokens::decode(&ids[start..]), "QX7-41B");
}

#[test]
fn chunks_of_any_size_give_the_same_logits() {
    for arithmetic in [
        Arithmetic::default(),
        Arithmetic { paged_indexer: true, mma_attention: true, bf16_indexer: true, ..Arithmetic::default() },
    ] {
        let model = model(arithmetic);
        let ids = long_ids(700);
        let expect = whole(&model, &ids);
        for size in [1, 63, 64, 257, 512] {
            let mut run = Run::new(ids.len());
            let mut got = Vec::new();
            for (i, chunk) in ids.chunks(size).enumerate() {
                got.extend(run.chunk(&model, chunk, i * size, None));
            }
            let error = worst(&got, &expect);
            assert!(error < 1e-5, "chunks of {size} differ by {error}");
        }
    }
}

#[test]
fn a_batch_equals_its_sequences_alone() {
    let model = model(Arithmetic::default());
    let (a, b) = (long_ids(400), golden_ids());
    let expect = [whole(&model, &a), whole(&model, &b)];
    let mut pool = Pool::new(2048);
    let pages: Vec<Vec<PageId>> =
        [&a, &b].map(|ids| (0..ids.len().div_ceil(PAGE)).map(|_| pool.allocate().unwrap()).collect()).to_vec();
    let faults = Faults::default();
    let sequences = [0, 1].map(|i| SeqView { pages: &pages[i], faults: &faults });
    let mut step = |ranges: [std::ops::Range<usize>; 2]| {
        let mut rows = Vec::new();
        for (sequence, (ids, range)) in [&a, &b].into_iter().zip(ranges).enumerate() {
            rows.extend(range.map(|position| Row { sequence, position, token: ids[position] }));
        }
        let wanted: Vec<usize> = (0..rows.len()).collect();
        forward(&model, &mut pool, &Step { rows: &rows, sequences: &sequences, wanted: &wanted }, None)
    };
    step([0..398, 0..222]);
    for last in [2, 1] {
        let (i, j) = (400 - last, 224 - last);
        let logits = step([i..i + 1, j..j + 1]);
        assert!(worst(&logits[..VOCAB], &expect[0][i * VOCAB..(i + 1) * VOCAB]) < 1e-5);
        assert!(worst(&logits[VOCAB..], &expect[1][j * VOCAB..(j + 1) * VOCAB]) < 1e-5);
    }
}

#[test]
fn a_healthy_switch_moves_the_logits_little() {
    let ids = long_ids(500);
    let expect = whole(&model(Arithmetic::default()), &ids);
    let base = Arithmetic::default();
    let variants = [
        (Arithmetic { paged_indexer: true, ..base }, 0.0, 1e-5),
        (Arithmetic { routed_scaling: RoutedScaling::Topk, ..base }, 0.0, 1e-3),
        (Arithmetic { mhc: MhcGemm::Tf32, ..base }, 1e-6, 1.0),
        (Arithmetic { mhc: MhcGemm::Bf16, ..base }, 1e-4, 4.0),
        (Arithmetic { mma_attention: true, ..base }, 1e-5, 4.0),
        (Arithmetic { kv: KvDtype::Fp8E4m3, ..base }, 1e-3, 8.0),
    ];
    for (arithmetic, at_least, at_most) in variants {
        let error = worst(&whole(&model(arithmetic), &ids), &expect);
        assert!(error >= at_least && error <= at_most, "{arithmetic:?} moved the logits by {error}");
    }
}

#[test]
fn every_fault_moves_the_logits() {
    use super::super::arith::PageShift;
    let ids = long_ids(700);
    let model = model(Arithmetic { paged_indexer: true, ..Arithmetic::default() });
    let expect = whole(&model, &ids);
    let none = Faults::default();
    let faults = [
        Faults { page_shift: Some(PageShift { pages: 8, by: 1 }), ..none.clone() },
        Faults { page_offset: 1, ..none.clone() },
        Faults { index_interleaved: true, ..none.clone() },
        Faults { index_sign: true, ..none.clone() },
        Faults { window: Some(16), ..none.clone() },
        Faults { routed_factor: Some(1.5), ..none.clone() },
        Faults { kv_int4: true, ..none },
    ];
    for faults in faults {
        let mut run = Run::new(ids.len());
        run.faults = faults.clone();
        let error = worst(&run.chunk(&model, &ids, 0, None), &expect);
        assert!(error > 0.05, "{faults:?} moved the logits by only {error}");
    }
}
