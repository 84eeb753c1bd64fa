//! Lines, areas, marks and texts in units of the sheet, on whichever backend.

use plotters::coord::Shift;
use plotters::drawing::DrawingAreaErrorKind;
use plotters::element::{Circle, DashedPathElement, PathElement, Polygon, Rectangle};
use plotters::prelude::{DrawingArea, DrawingBackend};
use plotters::style::text_anchor::{HPos, Pos, VPos};
use plotters::style::{Color, FontTransform, IntoFont, RGBColor, ShapeStyle, TextStyle};

use super::font;
use super::palette::{Mark, Pen};

/// What drawing returns.
pub(super) type Drawn<DB> = Result<(), DrawingAreaErrorKind<<DB as DrawingBackend>::ErrorType>>;

/// A place on the sheet in units, from its upper left corner.
pub(super) type Point = (f64, f64);

/// A drawing area in units.
pub(super) struct Canvas<'a, DB: DrawingBackend> {
    area: &'a DrawingArea<DB, Shift>,
    scale: f64,
}

impl<'a, DB: DrawingBackend> Canvas<'a, DB> {
    /// An area of which one unit is so many pixels.
    pub(super) fn new(area: &'a DrawingArea<DB, Shift>, scale: f64) -> Self {
        Self { area, scale }
    }

    fn at(&self, (x, y): Point) -> (i32, i32) {
        ((x * self.scale).round() as i32, (y * self.scale).round() as i32)
    }

    fn stroke(&self, color: RGBColor, width: f64) -> ShapeStyle {
        color.stroke_width((width * self.scale).round().max(1.0) as u32)
    }

    /// A line through these points.
    pub(super) fn line(&self, points: &[Point], color: RGBColor, width: f64) -> Drawn<DB> {
        let points: Vec<(i32, i32)> = points.iter().map(|p| self.at(*p)).collect();
        self.area.draw(&PathElement::new(points, self.stroke(color, width)))
    }

    /// A line in a pen's dash.
    pub(super) fn pen_line(&self, points: &[Point], pen: Pen, width: f64) -> Drawn<DB> {
        let Some((dash, gap)) = pen.dash else { return self.line(points, pen.color, width) };
        let pixels = |length: f64| (length * self.scale).round() as i32;
        let points: Vec<(i32, i32)> = points.iter().map(|p| self.at(*p)).collect();
        let style = self.stroke(pen.color, width);
        self.area.draw(&DashedPathElement::new(points, pixels(dash), pixels(gap), style))
    }

    /// A filled polygon.
    pub(super) fn fill(&self, points: &[Point], color: RGBColor, opacity: f64) -> Drawn<DB> {
        let points: Vec<(i32, i32)> = points.iter().map(|p| self.at(*p)).collect();
        self.area.draw(&Polygon::new(points, color.mix(opacity)))
    }

    /// A filled rectangle.
    pub(super) fn rect(&self, from: Point, to: Point, color: RGBColor) -> Drawn<DB> {
        self.area.draw(&Rectangle::new([self.at(from), self.at(to)], color.filled()))
    }

    /// A mark of about this radius.
    pub(super) fn mark(&self, (x, y): Point, mark: Mark, color: RGBColor, radius: f64) -> Drawn<DB> {
        let r = radius;
        match mark {
            Mark::Disc => self.area.draw(&Circle::new(self.at((x, y)), (r * self.scale) as i32, color.filled())),
            Mark::Ring => {
                let pixels = (r * self.scale) as i32;
                self.area.draw(&Circle::new(self.at((x, y)), pixels, plotters::style::WHITE.filled()))?;
                self.area.draw(&Circle::new(self.at((x, y)), pixels, self.stroke(color, 1.3)))
            }
            Mark::Square => {
                let s = r * 0.88;
                self.rect((x - s, y - s), (x + s, y + s), color)
            }
            Mark::Triangle => {
                let r = r * 1.2;
                self.fill(&[(x, y - r), (x + 0.9 * r, y + 0.65 * r), (x - 0.9 * r, y + 0.65 * r)], color, 1.0)
            }
            Mark::Diamond => {
                let r = r * 1.25;
                self.fill(&[(x, y - r), (x + r, y), (x, y + r), (x - r, y)], color, 1.0)
            }
            Mark::Plus => {
                let r = r * 1.2;
                self.line(&[(x - r, y), (x + r, y)], color, 1.5)?;
                self.line(&[(x, y - r), (x, y + r)], color, 1.5)
            }
            Mark::Cross => {
                self.line(&[(x - r, y - r), (x + r, y + r)], color, 1.5)?;
                self.line(&[(x - r, y + r), (x + r, y - r)], color, 1.5)
            }
        }
    }

    /// A text whose left end, at the middle of its height, is here; `em` is its size.
    pub(super) fn text(&self, at: Point, text: &str, em: f64, color: RGBColor) -> Drawn<DB> {
        self.placed(at, text, em, color, HPos::Left)
    }

    /// A text with its middle or its right end here.
    pub(super) fn placed(&self, at: Point, text: &str, em: f64, color: RGBColor, anchor: HPos) -> Drawn<DB> {
        let font = (font::FAMILY, em * font::EM * self.scale).into_font();
        let style = TextStyle::from(font).color(&color).pos(Pos::new(anchor, VPos::Center));
        self.area.draw_text(&font::clean(text), &style, self.at(at))
    }

    /// A text that reads upwards, with its middle here.
    pub(super) fn upright(&self, at: Point, text: &str, em: f64, color: RGBColor) -> Drawn<DB> {
        let font = (font::FAMILY, em * font::EM * self.scale).into_font().transform(FontTransform::Rotate270);
        let style = TextStyle::from(font).color(&color).pos(Pos::new(HPos::Center, VPos::Center));
        self.area.draw_text(&font::clean(text), &style, self.at(at))
    }
}
