//! Pictures of a microtest as SVG and PNG, drawn through plotters.
//!
//! One drawing path for both: everything is drawn at a multiple of its size, since plotters knows whole pixels only; an
//! SVG is scaled back by its view box, a PNG by averaging. The font is built in, so no library or font of the system is
//! needed. Not responsible for what a picture shows, which is `kernel::figure`.

mod canvas;
mod curves;
mod font;
mod heat;
mod histogram;
mod layout;
mod palette;
mod raster;

use plotters::coord::Shift;
use plotters::prelude::{DrawingArea, DrawingBackend, IntoDrawingArea, SVGBackend, WHITE};

use crate::kernel::figure::{Picture, report_notes, sheet};
use crate::kernel::report::MicroReport;
use canvas::{Canvas, Drawn};
use layout::Layout;

/// How many times larger an SVG is drawn than it is shown.
const SVG_SCALE: u32 = 8;
/// Pixels of a PNG for one unit.
const PNG_PIXELS: u32 = 2;

/// Pictures that stand below each other on one page, with what must be said of them.
#[derive(Clone, Debug, PartialEq)]
pub struct Sheet {
    /// What stands above all.
    pub title: String,
    /// What the pictures' own titles begin with, so that it is not repeated.
    pub lead: String,
    /// The pictures, from top to bottom.
    pub pictures: Vec<Picture>,
    /// What stands below all: verdicts, and where the numbers come from.
    pub notes: Vec<String>,
}

impl Sheet {
    /// The sheet of a whole report.
    pub fn of(report: &MicroReport) -> Self {
        Self::with(report, sheet(report))
    }

    /// A sheet of these pictures of a report.
    pub fn with(report: &MicroReport, pictures: Vec<Picture>) -> Self {
        let at = report.at.strftime("%Y-%m-%d %H:%M UTC");
        let lead = format!("{} on {}", report.spec, report.device);
        Self { title: format!("{lead}, {at}"), lead, pictures, notes: report_notes(report) }
    }
}

/// Why a picture could not be drawn.
#[derive(Debug, thiserror::Error)]
pub enum PlotError {
    /// There is nothing on the sheet.
    #[error("the report has no curve that could be drawn")]
    Empty,
    /// The built-in font is damaged.
    #[error("the built-in font cannot be read")]
    Font,
    /// A backend failed.
    #[error("the picture could not be drawn: {0}")]
    Drawing(String),
}

/// The sheet as SVG.
///
/// # Errors
/// There is nothing to draw, or plotters fails.
pub fn svg(sheet: &Sheet) -> Result<String, PlotError> {
    let layout = plan(sheet)?;
    let (width, height) = layout.size();
    let mut out = String::new();
    let backend = SVGBackend::with_string(&mut out, (width * SVG_SCALE, height * SVG_SCALE));
    draw(backend, sheet, &layout, SVG_SCALE)?;
    let drawn = format!("width=\"{}\" height=\"{}\"", width * SVG_SCALE, height * SVG_SCALE);
    let shown = format!("width=\"{width}\" height=\"{height}\" role=\"img\"");
    let described = format!(
        "xmlns=\"http://www.w3.org/2000/svg\">\n<title>{}</title>\n<desc>{}</desc>\n",
        escaped(&sheet.title),
        escaped(&sheet.notes.join("\n"))
    );
    let out = out.replacen(&drawn, &shown, 1);
    let out = out.replacen("xmlns=\"http://www.w3.org/2000/svg\">\n", &described, 1);
    // Verdana has the same widths as the font that the places of the texts were measured with.
    Ok(out.replace("font-family=\"sans-serif\"", "font-family=\"DejaVu Sans, Verdana, sans-serif\""))
}

/// The sheet as PNG, two pixels a unit.
///
/// # Errors
/// There is nothing to draw, or plotters fails.
pub fn png(sheet: &Sheet) -> Result<Vec<u8>, PlotError> {
    let layout = plan(sheet)?;
    let (width, height) = layout.size();
    let (width, height) = (width * PNG_PIXELS, height * PNG_PIXELS);
    raster::png((width, height), &sheet.title, |backend, scale| draw(backend, sheet, &layout, scale * PNG_PIXELS))
}

fn plan(sheet: &Sheet) -> Result<Layout, PlotError> {
    if sheet.pictures.is_empty() {
        return Err(PlotError::Empty);
    }
    font::register()?;
    Ok(Layout::of(sheet))
}

fn draw<DB: DrawingBackend>(backend: DB, sheet: &Sheet, layout: &Layout, scale: u32) -> Result<(), PlotError> {
    let area = backend.into_drawing_area();
    all(&area, sheet, layout, scale).map_err(|e| PlotError::Drawing(e.to_string()))
}

fn all<DB: DrawingBackend>(area: &DrawingArea<DB, Shift>, sheet: &Sheet, layout: &Layout, scale: u32) -> Drawn<DB> {
    area.fill(&WHITE)?;
    let canvas = Canvas::new(area, f64::from(scale));
    canvas.text((layout::MARGIN, layout.title_y), &sheet.title, layout::TITLE, palette::INK)?;
    for (picture, panel) in sheet.pictures.iter().zip(&layout.panels) {
        // What the title above all says already is not said again.
        let title = picture.title();
        let title = title.strip_prefix(&sheet.lead).map_or(title, |rest| rest.trim_start_matches([',', ' ']));
        canvas.text((layout::MARGIN, panel.top), title, layout::HEADING, palette::INK)?;
        match picture {
            Picture::Curves(figure) => curves::draw(&canvas, figure, panel)?,
            Picture::Histogram(histogram) => histogram::draw(&canvas, histogram, panel)?,
            Picture::Heat(map) => heat::draw(&canvas, map, panel)?,
        }
        for (i, line) in panel.notes.iter().enumerate() {
            let y = panel.notes_y + i as f64 * layout::SMALL_LINE;
            canvas.text((layout::MARGIN, y), line, layout::SMALL, palette::GREY)?;
        }
    }
    for (i, line) in layout.notes.iter().enumerate() {
        let y = layout.notes_y + i as f64 * layout::NOTE_LINE;
        canvas.text((layout::MARGIN, y), line, layout::NOTE, palette::INK)?;
    }
    area.present()
}

fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in font::clean(text).chars() {
        match c {
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '&' => out.push_str("&amp;"),
            other => out.push(other),
        }
    }
    out
}

#[cfg(test)]
mod tests;
