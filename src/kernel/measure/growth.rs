//! How the errors of a compounded curve grow.
//!
//! Responsible for telling noise from a drift and both from a break. Not responsible for whether the
//! error is large.
//!
//! Independent errors add up like a random walk, so that the error grows as the root of the number
//! of points; errors in one direction add up in proportion. The exponent is that of a least-squares
//! line through the logarithms of error and of the number of points, and the cut lies half-way, at
//! 0.75. One point makes a **break** where the error jumps well above what the points before it
//! explain *and then stays*: where it goes on to grow as if every point added as much again, a new
//! kind of point began there, and the growth is that of the points from there on.

use crate::kernel::report::Growth;

/// Exponents from here on are coherent.
const COHERENT_FROM: f64 = 0.75;

/// A jump is at least so many times the greatest error before it, and so many times what the line
/// through the points before it expects.
const JUMP: f64 = 3.0;

/// A jump is also so many times the scatter of the points before it around their line.
const SCATTER: f64 = 4.0;

/// After a break the error grows with a smaller exponent than this, counted from the break: it would
/// be 0.5 if each later point added as much again, and is 0 if none adds anything. What lies between
/// leaves room for a broken state that the later points amplify.
const LEVEL_BELOW: f64 = 0.35;

/// Fewer points do not make a line.
const FEWEST: usize = 4;

/// How the errors grow, point by point; `None` where that cannot be said.
///
/// Points without error are left out of the line, and the count begins with the first that has one;
/// if that one makes all of the error, it is a break with an infinite factor. An error that is
/// infinite or NaN is a break at that point, with that factor, unless the errors before it break
/// already. Fewer than four points with an error, and NaN or infinity in the first, are `None`.
pub fn growth(errors: &[f64]) -> Option<Growth> {
    let finite = errors.iter().take_while(|e| e.is_finite()).count();
    let grown = grown(errors, 0, finite);
    if finite == errors.len() || finite == 0 || matches!(grown, Some(Growth::Break { .. })) {
        return grown;
    }
    Some(Growth::Break { at: finite, factor: errors[finite] / errors[finite - 1] })
}

/// The growth of the points from `start` to `end`, counted from `start`.
fn grown(errors: &[f64], start: usize, end: usize) -> Option<Growth> {
    let points = &errors[start..end];
    let Some(jump) = first_jump(points) else { return steady(points) };
    let after = &points[jump..];
    let undisturbed = first_jump(after).unwrap_or(after.len());
    if line(&after[..undisturbed]).is_none_or(|line| line.exponent < LEVEL_BELOW) {
        return Some(Growth::Break { at: start + jump, factor: points[jump] / points[jump - 1] });
    }
    grown(errors, start + jump, end)
}

fn steady(points: &[f64]) -> Option<Growth> {
    if points.iter().filter(|e| **e > 0.0).count() < FEWEST {
        return None;
    }
    let exponent = line(points)?.exponent;
    Some(if exponent < COHERENT_FROM { Growth::NoiseLike { exponent } } else { Growth::Coherent { exponent } })
}

fn first_jump(points: &[f64]) -> Option<usize> {
    (1..points.len()).find(|at| jumps(&points[..*at], points[*at]))
}

/// Whether `error` lies well above what the points before it explain.
fn jumps(before: &[f64], error: f64) -> bool {
    let greatest = before.iter().copied().fold(0.0, f64::max);
    if error <= JUMP * greatest {
        return false;
    }
    let Some(last) = before.iter().rposition(|e| *e > 0.0) else { return true };
    let number = (before.len() + 1) as f64;
    let fitted = line(before).filter(|line| line.count > 2);
    // One or two points make no line with a scatter; growth in proportion is the most they explain.
    let (expected, scatter) = fitted.map_or_else(
        || (before[last].ln() + (number / (last + 1) as f64).ln(), 0.0),
        |line| (line.level + line.exponent * number.ln(), line.scatter),
    );
    error.ln() - expected > JUMP.ln().max(SCATTER * scatter)
}

/// A least-squares line through the logarithms.
struct Line {
    /// Points with an error.
    count: usize,
    /// Logarithm of the error at the first point.
    level: f64,
    /// Slope.
    exponent: f64,
    /// Standard deviation around the line; 0 for two points.
    scatter: f64,
}

/// The line through the points that have an error, by their number from 1; `None` below two.
fn line(points: &[f64]) -> Option<Line> {
    let logs: Vec<(f64, f64)> =
        points.iter().enumerate().filter(|(_, e)| **e > 0.0).map(|(i, e)| (((i + 1) as f64).ln(), e.ln())).collect();
    if logs.len() < 2 {
        return None;
    }
    let count = logs.len() as f64;
    let mean = |pick: fn(&(f64, f64)) -> f64| logs.iter().map(pick).sum::<f64>() / count;
    let (mean_x, mean_y) = (mean(|p| p.0), mean(|p| p.1));
    let across: f64 = logs.iter().map(|(x, y)| (x - mean_x) * (y - mean_y)).sum();
    let along: f64 = logs.iter().map(|(x, _)| (x - mean_x).powi(2)).sum();
    let exponent = across / along;
    let level = mean_y - exponent * mean_x;
    let off: f64 = logs.iter().map(|(x, y)| (y - level - exponent * x).powi(2)).sum();
    let scatter = if logs.len() > 2 { (off / (count - 2.0)).sqrt() } else { 0.0 };
    Some(Line { count: logs.len(), level, exponent, scatter })
}

#[cfg(test)]
#[path = "growth_tests.rs"]
mod tests;
