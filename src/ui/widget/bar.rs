//! Progress bars and sparklines as text.

const LEVELS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
const LEVELS_ASCII: [char; 8] = ['_', '.', ':', '-', '=', '+', '*', '#'];

/// A bar of `cells` cells, `share` (0 to 1) of it filled.
pub fn progress(share: f64, cells: usize, ascii: bool) -> String {
    let share = if share.is_finite() { share.clamp(0.0, 1.0) } else { 0.0 };
    let full = (share * cells as f64).floor() as usize;
    let (on, off) = if ascii { ('#', '.') } else { ('█', '░') };
    (0..cells).map(|i| if i < full { on } else { off }).collect()
}

/// The filled part alone of a bar of at most `cells` cells; a share that is not zero has at least a thin one.
pub fn filled(share: f64, cells: usize, ascii: bool) -> String {
    let share = if share.is_finite() { share.clamp(0.0, 1.0) } else { 0.0 };
    let full = (share * cells as f64).round() as usize;
    match (full, share > 0.0) {
        (0, true) => if ascii { "|" } else { "▏" }.to_owned(),
        _ => if ascii { "#" } else { "█" }.repeat(full),
    }
}

/// The last `cells` samples, each as the height of one character, from 0 to `top`.
///
/// A sample that is no number is a blank: unknown is not zero.
pub fn sparkline<'a>(samples: impl DoubleEndedIterator<Item = &'a f64>, top: f64, cells: usize, ascii: bool) -> String {
    let levels = if ascii { LEVELS_ASCII } else { LEVELS };
    let mut out: Vec<char> = samples
        .rev()
        .take(cells)
        .map(|v| {
            if !v.is_finite() {
                return ' ';
            }
            let share = if top > 0.0 { (v / top).clamp(0.0, 1.0) } else { 0.0 };
            levels[((share * 7.0).round() as usize).min(7)]
        })
        .collect();
    out.reverse();
    out.into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bar_is_full_only_at_the_end() {
        assert_eq!(progress(0.0, 4, true), "....");
        assert_eq!(progress(0.99, 4, true), "###.");
        assert_eq!(progress(1.0, 4, true), "####");
        assert_eq!(progress(f64::NAN, 2, true), "..");
        assert_eq!(progress(7.0, 2, false), "██");
    }

    #[test]
    fn a_bar_of_a_little_is_thin_and_of_nothing_is_not_there() {
        assert_eq!(filled(0.0, 4, false), "");
        assert_eq!(filled(1e-6, 4, false), "▏");
        assert_eq!(filled(0.5, 4, true), "##");
        assert_eq!(filled(1.0, 3, false), "███");
    }

    #[test]
    fn a_sparkline_shows_the_newest_and_leaves_unknown_blank() {
        let samples = [0.0, 0.5, f64::NAN, 1.0];
        assert_eq!(sparkline(samples.iter(), 1.0, 4, true), "_= #");
        assert_eq!(sparkline(samples.iter(), 1.0, 2, false), " █");
        assert_eq!(sparkline(samples.iter(), 0.0, 1, false), "▁");
    }
}
