use super::*;
use crate::kernel::figure::{figure, overlay, sample};
use crate::kernel::report::CurveMode;

fn decoded(bytes: &[u8]) -> (u32, u32, Vec<u8>) {
    let mut reader = png::Decoder::new(std::io::Cursor::new(bytes)).read_info().unwrap();
    let mut pixels = vec![0; reader.output_buffer_size().unwrap()];
    let info = reader.next_frame(&mut pixels).unwrap();
    (info.width, info.height, pixels)
}

#[test]
fn an_svg_is_well_formed_and_says_what_the_picture_says() {
    let text = svg(&Sheet::of(&sample::report())).unwrap();
    assert!(text.starts_with("<svg width=\"960\" height=\""), "{}", &text[..80]);
    assert!(text.trim_end().ends_with("</svg>"));
    assert_eq!(text.matches("<text").count(), text.matches("</text>").count());
    let words = [
        "<title>mhc-mix on cpu, 2026-05-01 12:00 UTC</title>",
        "noise band",
        "flips decisions",
        "noise-like",
        "1e-3",
        "layer 0 attention",
        "points not drawn: 1 not finite",
        "it does not show what",
        "exactly zero",
        "weights of the lab",
    ];
    for word in words {
        assert!(text.contains(word), "{word}");
    }
}

#[test]
fn every_coordinate_of_an_svg_lies_on_its_sheet() {
    let sheet = Sheet::of(&sample::report());
    let text = svg(&sheet).unwrap();
    let (width, height) = plan(&sheet).unwrap().size();
    let limit = |n: u32| f64::from(n * SVG_SCALE) + 1.0;
    let points = text.split("points=\"").skip(1).filter_map(|rest| rest.split('"').next());
    let mut seen = 0;
    for pair in points.flat_map(str::split_whitespace) {
        let (x, y) = pair.split_once(',').unwrap();
        let (x, y): (f64, f64) = (x.parse().unwrap(), y.parse().unwrap());
        assert!((0.0..=limit(width)).contains(&x) && (0.0..=limit(height)).contains(&y), "{pair}");
        seen += 1;
    }
    assert!(seen > 100, "{seen}");
}

#[test]
fn a_name_with_markup_or_control_characters_leaves_the_svg_whole() {
    let mut report = sample::report();
    report.provenance = "</svg><script>x</script>\u{1b}[31m & \"y\"".into();
    report.curves[0].candidate = "<b>\u{7}".into();
    let text = svg(&Sheet::of(&report)).unwrap();
    assert!(!text.contains("<script") && !text.contains("<b>"));
    assert!(!text.chars().any(|c| c.is_control() && c != '\n'));
    assert_eq!(text.matches("</svg>").count(), 1);
}

#[test]
fn a_png_has_two_pixels_a_unit_and_the_colours_of_its_lines() {
    let sheet = Sheet::of(&sample::report());
    let (width, height, pixels) = decoded(&png(&sheet).unwrap());
    let (w, h) = plan(&sheet).unwrap().size();
    assert_eq!((width, height), (w * PNG_PIXELS, h * PNG_PIXELS));
    let count = |color: plotters::style::RGBColor| {
        pixels.chunks_exact(3).filter(|p| p[..] == [color.0, color.1, color.2]).count()
    };
    for n in 0..3 {
        assert!(count(palette::candidate(n, 0).color) > 200, "line {n}");
    }
    // The greatest error of the map of `scale-twice` lies near the bright end of the scale.
    let bright = pixels.chunks_exact(3).filter(|p| p[0] > 100 && p[1] > 180 && p[2] < 100).count();
    assert!(bright > 1000, "{bright}");
    assert!(count(plotters::style::WHITE) > pixels.len() / 3 / 2);
}

#[test]
fn without_a_curve_there_is_no_file() {
    let empty = Sheet::of(&crate::kernel::report::MicroReport::default());
    assert!(matches!(svg(&empty), Err(PlotError::Empty)));
    assert!(matches!(png(&empty), Err(PlotError::Empty)));
}

#[test]
fn an_overlay_and_twins_are_drawn_and_told_apart_without_colour() {
    let report = sample::report();
    let mut other = report.clone();
    other.device = "cuda:0".into();
    let both = overlay(&[&report, &other], CurveMode::PerSite, true);
    let text = svg(&Sheet::with(&report, vec![Picture::Curves(both)])).unwrap();
    assert!(text.contains("bf16 (cpu)") && text.contains("bf16 (cuda:0)") && text.contains("known-bad twin"));
    let pens: Vec<palette::Pen> = (0..6).flat_map(|n| [palette::candidate(n, 0), palette::candidate(n, 1)]).collect();
    for (i, a) in pens.iter().enumerate() {
        assert!(pens[i + 1..].iter().all(|b| (a.dash, a.mark) != (b.dash, b.mark)), "{i}");
    }
}

#[test]
fn a_report_whose_values_cannot_be_drawn_is_still_a_picture() {
    let mut report = sample::report();
    report.bands.clear();
    report.floor.clear();
    report.curves.iter_mut().for_each(|c| c.rel_l2.fill(f64::NAN));
    let figure = figure(&report, CurveMode::PerSite, false);
    let text = svg(&Sheet::with(&report, vec![Picture::Curves(figure)])).unwrap();
    assert!(text.contains("bf16: points not drawn: 12 not finite"));
}

#[test]
fn texts_are_broken_to_their_room() {
    font::register().unwrap();
    let text = "a sentence of some words and anextremelylongwordthatnolinecanholdatallbecauseitgoesonandon end";
    for room in [40.0, 90.0, 300.0] {
        let lines = font::wrap(text, 10.0, room);
        assert!(lines.iter().all(|l| font::width(l, 10.0) <= room), "{lines:?}");
        assert_eq!(lines.concat().replace(' ', ""), text.replace(' ', ""));
    }
    assert!(font::width("ab", 10.0) > font::width("a", 10.0));
}

#[test]
fn the_font_has_every_sign_that_our_own_texts_use() {
    font::register().unwrap();
    use plotters::style::IntoFont as _;
    let drawn = |text: &str| {
        let mut pixels: Vec<(i32, i32)> = Vec::new();
        let font = (font::FAMILY, 40).into_font();
        let result = font.draw(text, (0, 0), |x, y, _| {
            pixels.push((x, y));
            Ok::<(), ()>(())
        });
        result.unwrap().unwrap();
        pixels
    };
    let missing = drawn("\u{4e00}");
    for c in ('!'..='~').chain("×·…≤≥±µ°".chars()) {
        let pixels = drawn(&c.to_string());
        assert!(!pixels.is_empty() && pixels != missing, "{c}");
    }
}
