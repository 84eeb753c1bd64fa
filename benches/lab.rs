//! Speed of the lab model: prefill at three lengths in chunks of 256, and decode.

use patchbench::lab::cache::{PAGE, PageId, Pool};
use patchbench::lab::model::{Arithmetic, EMBEDDED, Faults, Model, Row, SeqView, Step, forward};

fn main() {
    divan::main();
}

struct Lab {
    model: Model,
    pool: Pool,
    pages: Vec<PageId>,
}

impl Lab {
    fn new(tokens: usize) -> Self {
        let arithmetic = Arithmetic { paged_indexer: true, ..Arithmetic::default() };
        let model = Model::load(EMBEDDED, arithmetic).unwrap_or_else(|e| panic!("the embedded checkpoint: {e}"));
        let mut pool = Pool::new(tokens + 2 * PAGE);
        let pages = (0..=tokens / PAGE).filter_map(|_| pool.allocate()).collect();
        Self { model, pool, pages }
    }

    fn run(&mut self, from: usize, to: usize) -> f32 {
        let faults = Faults::default();
        let rows: Vec<Row> =
            (from..to).map(|p| Row { sequence: 0, position: p, token: (97 + p * p % 26) as u16 }).collect();
        let sequences = [SeqView { pages: &self.pages, faults: &faults }];
        let step = Step { rows: &rows, sequences: &sequences, wanted: &[rows.len() - 1] };
        forward(&self.model, &mut self.pool, &step, None)[0]
    }
}

#[divan::bench(args = [1024, 8192, 32768], sample_count = 3, sample_size = 1)]
fn prefill(bencher: divan::Bencher<'_, '_>, tokens: usize) {
    let mut lab = Lab::new(tokens);
    bencher
        .counter(divan::counter::ItemsCount::new(tokens))
        .bench_local(|| (0..tokens).step_by(256).map(|from| lab.run(from, (from + 256).min(tokens))).sum::<f32>());
}

#[divan::bench(args = [256, 2048], sample_count = 5, sample_size = 1)]
fn decode_64_tokens(bencher: divan::Bencher<'_, '_>, context: usize) {
    let mut lab = Lab::new(context + 64);
    for from in (0..context).step_by(256) {
        lab.run(from, (from + 256).min(context));
    }
    bencher
        .counter(divan::counter::ItemsCount::new(64_usize))
        .bench_local(|| (0..64).map(|i| lab.run(context + i, context + i + 1)).sum::<f32>());
}
