//! From plotters' pixels to a PNG: drawn larger and averaged, since plotters' own edges are hard.

use plotters::backend::BitMapBackend;

use super::PlotError;

/// How many times larger in each direction the picture is drawn than it is written.
const OVERSAMPLE: u32 = 2;

/// Draws a picture of this many pixels and encodes it; `draw` is told by how much larger it must draw.
///
/// # Errors
/// Drawing or encoding fails.
pub(super) fn png(
    (width, height): (u32, u32),
    title: &str,
    draw: impl FnOnce(BitMapBackend<'_>, u32) -> Result<(), PlotError>,
) -> Result<Vec<u8>, PlotError> {
    let large = (width * OVERSAMPLE, height * OVERSAMPLE);
    let mut pixels = vec![0u8; large.0 as usize * large.1 as usize * 3];
    draw(BitMapBackend::with_buffer(&mut pixels, large), OVERSAMPLE)?;
    encode((width, height), title, &averaged(&pixels, large)).map_err(|e| PlotError::Drawing(e.to_string()))
}

/// Each pixel is the mean of the square of larger pixels that it covers. Rows of three bytes a pixel.
fn averaged(pixels: &[u8], (width, height): (u32, u32)) -> Vec<u8> {
    let (n, row) = (OVERSAMPLE as usize, width as usize * 3);
    let (columns, rows) = (width as usize / n, height as usize / n);
    let mut out = Vec::with_capacity(columns * rows * 3);
    for y in 0..rows {
        for x in 0..columns {
            for channel in 0..3 {
                let at = |dx: usize, dy: usize| pixels[(y * n + dy) * row + (x * n + dx) * 3 + channel];
                let sum: usize = (0..n * n).map(|i| usize::from(at(i % n, i / n))).sum();
                out.push((sum / (n * n)) as u8);
            }
        }
    }
    out
}

fn encode((width, height): (u32, u32), title: &str, rgb: &[u8]) -> Result<Vec<u8>, png::EncodingError> {
    let mut out = Vec::new();
    let mut encoder = png::Encoder::new(&mut out, width, height);
    encoder.set_color(png::ColorType::Rgb);
    encoder.set_depth(png::BitDepth::Eight);
    encoder.add_itxt_chunk("Title".into(), title.into())?;
    let mut writer = encoder.write_header()?;
    writer.write_image_data(rgb)?;
    writer.finish()?;
    Ok(out)
}
