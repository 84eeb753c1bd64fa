//! The built-in font: its bytes, how wide a text is, and where it is broken.

use plotters::style::{FontStyle, IntoFont, register_font};

use super::PlotError;

/// `DejaVu` Sans, the glyphs of Latin-1 and a few signs; see `LICENSE-DejaVu.txt` beside it.
const DEJAVU: &[u8] = include_bytes!("DejaVuSans.subset.ttf");

/// The name under which plotters knows it.
pub(super) const FAMILY: &str = "sans-serif";

/// plotters sets a font of size 1.24 as one em.
pub(super) const EM: f64 = 1.24;

/// Makes the font known to plotters; must come before any text is measured or drawn. May be called again.
///
/// # Errors
/// The program was built with a damaged font.
pub(super) fn register() -> Result<(), PlotError> {
    register_font(FAMILY, FontStyle::Normal, DEJAVU).map_err(|_| PlotError::Font)
}

/// Width of a text of this em, in units.
pub(super) fn width(text: &str, em: f64) -> f64 {
    // Measured large, since plotters rounds to whole pixels.
    let font = (FAMILY, 100.0 * EM).into_font();
    font.layout_box(&clean(text)).map_or(0.0, |(_, (w, _))| f64::from(w) / 100.0 * em)
}

/// The text in lines of at most this width, broken between words; a longer word is cut where it must be.
pub(super) fn wrap(text: &str, em: f64, room: f64) -> Vec<String> {
    let mut lines = Vec::new();
    let mut line = String::new();
    for word in text.split_whitespace() {
        let longer = if line.is_empty() { word.to_owned() } else { format!("{line} {word}") };
        if width(&longer, em) <= room {
            line = longer;
            continue;
        }
        if !line.is_empty() {
            lines.push(std::mem::take(&mut line));
        }
        for c in word.chars() {
            line.push(c);
            if width(&line, em) > room && line.chars().count() > 1 {
                line.pop();
                lines.push(std::mem::take(&mut line));
                line.push(c);
            }
        }
    }
    if !line.is_empty() {
        lines.push(line);
    }
    lines
}

/// The text without characters that neither XML nor the font has.
pub(super) fn clean(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}
