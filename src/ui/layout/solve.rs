//! From a layout and an area to rectangles. Pure.
//!
//! Panes that do not fit are folded to their title line or hidden, the least important first; the
//! pane that has the focus always stays.

use ratatui::layout::Rect;

use super::{Axis, Group, Layout, Slot};
use crate::ui::pane::PaneId;

/// Where everything stands.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Solved {
    /// The panes that are drawn, in the order of their numbers.
    pub placed: Vec<Placed>,
    /// The panes for which there is no room.
    pub hidden: Vec<PaneId>,
    /// One-cell lines between panes that stand side by side.
    pub separators: Vec<Rect>,
}

impl Solved {
    /// The place of a pane, if it is drawn.
    pub fn find(&self, pane: PaneId) -> Option<&Placed> {
        self.placed.iter().find(|p| p.pane == pane)
    }
}

/// A pane that is drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Placed {
    /// The pane.
    pub pane: PaneId,
    /// Its number, from 1.
    pub number: usize,
    /// Its place, with the title line on top.
    pub rect: Rect,
    /// Only the title line is drawn.
    pub folded: bool,
}

/// A direction on the screen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// To the left.
    Left,
    /// To the right.
    Right,
    /// Up.
    Up,
    /// Down.
    Down,
}

/// Places the panes of `layout` in `area`; `focus` is kept whatever its priority.
pub fn solve(layout: &Layout, area: Rect, focus: PaneId) -> Solved {
    let mut out = Solved::default();
    if area.is_empty() {
        out.hidden = layout.panes().collect();
        return out;
    }
    match layout.axis {
        Axis::Columns => {
            for (group, rect) in keep_columns(&layout.groups, area, focus, &mut out) {
                stack(&group.slots.iter().collect::<Vec<_>>(), rect, focus, &mut out);
            }
        }
        Axis::Rows => {
            let groups: Vec<&Group> = layout.groups.iter().collect();
            let kept = keep_rows(&groups, area.height, focus);
            let needs: Vec<_> = kept.iter().map(|g| (g.ratio, group_height(g))).collect();
            let mut y = area.y;
            for (group, height) in kept.iter().zip(share(area.height, &needs)) {
                side_by_side(&group.slots, Rect { y, height, ..area }, focus, &mut out);
                y += height;
            }
        }
    }
    let order: Vec<PaneId> = layout.panes().collect();
    out.hidden = order.iter().copied().filter(|p| out.find(*p).is_none()).collect();
    for placed in &mut out.placed {
        placed.number = order.iter().position(|p| *p == placed.pane).map_or(0, |i| i + 1);
    }
    out.placed.sort_by_key(|p| p.number);
    out
}

/// The pane that one reaches from `from` in a direction: the nearest drawn rectangle on that side that
/// overlaps it across, else nothing.
pub fn neighbour(solved: &Solved, from: PaneId, direction: Direction) -> Option<PaneId> {
    let here = solved.find(from)?.rect;
    let overlap = |a: u16, a_len: u16, b: u16, b_len: u16| i32::from((a + a_len).min(b + b_len)) - i32::from(a.max(b));
    solved
        .placed
        .iter()
        .filter(|p| p.pane != from)
        .filter_map(|p| {
            let there = p.rect;
            let (distance, across) = match direction {
                Direction::Left => {
                    (i32::from(here.x) - i32::from(there.right()), overlap(here.y, here.height, there.y, there.height))
                }
                Direction::Right => {
                    (i32::from(there.x) - i32::from(here.right()), overlap(here.y, here.height, there.y, there.height))
                }
                Direction::Up => {
                    (i32::from(here.y) - i32::from(there.bottom()), overlap(here.x, here.width, there.x, there.width))
                }
                Direction::Down => {
                    (i32::from(there.y) - i32::from(here.bottom()), overlap(here.x, here.width, there.x, there.width))
                }
            };
            (distance >= 0 && across > 0).then_some((distance, -across, p.pane))
        })
        .min()
        .map(|(_, _, pane)| pane)
}

fn rank(slot: Slot, focus: PaneId) -> u8 {
    if slot.pane == focus { 0 } else { slot.priority.max(1) }
}

fn group_rank(group: &Group, focus: PaneId) -> u8 {
    group.slots.iter().map(|s| rank(*s, focus)).min().unwrap_or(u8::MAX)
}

fn group_width(group: &Group) -> u16 {
    group.slots.iter().map(|s| s.min.0).max().unwrap_or(0)
}

fn group_height(group: &Group) -> u16 {
    group.slots.iter().map(|s| s.min.1).max().unwrap_or(0)
}

/// Index of the least important, the last among equals.
fn least(ranks: impl Iterator<Item = u8>) -> Option<usize> {
    ranks.enumerate().max_by_key(|(i, r)| (*r, *i)).map(|(i, _)| i)
}

fn keep_columns<'a>(groups: &'a [Group], area: Rect, focus: PaneId, out: &mut Solved) -> Vec<(&'a Group, Rect)> {
    let mut kept: Vec<&Group> = groups.iter().collect();
    let needed = |kept: &[&Group]| kept.iter().map(|g| group_width(g) as usize + 1).sum::<usize>().saturating_sub(1);
    while kept.len() > 1 && needed(&kept) > area.width as usize {
        let Some(i) = least(kept.iter().map(|g| group_rank(g, focus))) else { break };
        kept.remove(i);
    }
    let needs: Vec<_> = kept.iter().map(|g| (g.ratio, group_width(g))).collect();
    let rects = across(area, &needs, out);
    kept.into_iter().zip(rects).collect()
}

fn keep_rows<'a>(groups: &[&'a Group], height: u16, focus: PaneId) -> Vec<&'a Group> {
    let mut kept = groups.to_vec();
    while kept.len() > 1 && kept.iter().map(|g| group_height(g) as usize).sum::<usize>() > height as usize {
        let Some(i) = least(kept.iter().map(|g| group_rank(g, focus))) else { break };
        kept.remove(i);
    }
    kept
}

/// Rectangles side by side with a separator between each two.
fn across(area: Rect, needs: &[(u16, u16)], out: &mut Solved) -> Vec<Rect> {
    let gaps = needs.len().saturating_sub(1) as u16;
    let widths = share(area.width.saturating_sub(gaps), needs);
    let mut x = area.x;
    let mut rects = Vec::new();
    for (i, width) in widths.into_iter().enumerate() {
        if i > 0 {
            out.separators.push(Rect { x, width: 1, ..area });
            x += 1;
        }
        rects.push(Rect { x, width, ..area });
        x += width;
    }
    rects
}

fn side_by_side(slots: &[Slot], area: Rect, focus: PaneId, out: &mut Solved) {
    let mut kept: Vec<&Slot> = slots.iter().collect();
    let needed = |kept: &[&Slot]| kept.iter().map(|s| s.min.0 as usize + 1).sum::<usize>().saturating_sub(1);
    while kept.len() > 1 && needed(&kept) > area.width as usize {
        let Some(i) = least(kept.iter().map(|s| rank(**s, focus))) else { break };
        kept.remove(i);
    }
    let needs: Vec<_> = kept.iter().map(|s| (s.ratio, s.min.0)).collect();
    for (slot, rect) in kept.iter().zip(across(area, &needs, out)) {
        out.placed.push(Placed { pane: slot.pane, number: 0, rect, folded: false });
    }
}

/// One above the other; what does not fit is folded to one line, then dropped.
fn stack(slots: &[&Slot], area: Rect, focus: PaneId, out: &mut Solved) {
    let mut kept: Vec<(&Slot, bool)> = slots.iter().map(|s| (*s, false)).collect();
    let needed = |kept: &[(&Slot, bool)]| -> usize {
        kept.iter().map(|(s, folded)| if *folded { 1 } else { s.min.1 as usize }).sum()
    };
    while needed(&kept) > area.height as usize {
        let open = kept.iter().filter(|(_, folded)| !folded).count();
        let ranks =
            |want: bool| kept.iter().map(move |(s, folded)| if *folded == want { rank(**s, focus) + 1 } else { 0 });
        if open > 1
            && let Some(i) = least(ranks(false))
        {
            kept[i].1 = true;
        } else if kept.len() > 1
            && let Some(i) = least(ranks(true))
        {
            kept.remove(i);
        } else {
            break;
        }
    }
    let needs: Vec<_> = kept.iter().map(|(s, folded)| if *folded { (0, 1) } else { (s.ratio, s.min.1) }).collect();
    let mut y = area.y;
    for ((slot, folded), height) in kept.iter().zip(share(area.height, &needs)) {
        out.placed.push(Placed { pane: slot.pane, number: 0, rect: Rect { y, height, ..area }, folded: *folded });
        y += height;
    }
}

/// Divides `total` by the ratios so that each gets at least its minimum where that is possible; a
/// ratio of 0 gets exactly its minimum.
fn share(total: u16, needs: &[(u16, u16)]) -> Vec<u16> {
    let mut sizes: Vec<Option<u16>> = needs.iter().map(|(ratio, min)| (*ratio == 0).then_some(*min)).collect();
    loop {
        let fixed: u32 = sizes.iter().flatten().map(|s| u32::from(*s)).sum();
        let rest = u32::from(total).saturating_sub(fixed);
        let ratios: u32 = needs.iter().zip(&sizes).filter(|(_, s)| s.is_none()).map(|((r, _), _)| u32::from(*r)).sum();
        if ratios == 0 {
            break;
        }
        let short = needs
            .iter()
            .zip(&sizes)
            .position(|((r, min), s)| s.is_none() && rest * u32::from(*r) / ratios < u32::from(*min));
        if let Some(i) = short {
            sizes[i] = Some(needs[i].1.min(rest as u16));
            continue;
        }
        let mut left = rest;
        let mut ratios_left = ratios;
        for ((ratio, _), size) in needs.iter().zip(&mut sizes) {
            if size.is_none() {
                let part = left * u32::from(*ratio) / ratios_left;
                *size = Some(part as u16);
                left -= part;
                ratios_left -= u32::from(*ratio);
            }
        }
        break;
    }
    let mut left = total;
    let last = needs.iter().rposition(|(r, _)| *r > 0).unwrap_or(needs.len().saturating_sub(1));
    let mut out: Vec<u16> = sizes
        .into_iter()
        .map(|s| {
            let size = s.unwrap_or(0).min(left);
            left -= size;
            size
        })
        .collect();
    if let Some(size) = out.get_mut(last) {
        *size += left;
    }
    out
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::read::built_in;
    use super::*;

    fn arbitrary_layout() -> impl Strategy<Value = Layout> {
        let slot = (1u16..5, 10u16..60, 2u16..12, 1u8..9);
        let groups = prop::collection::vec((1u16..5, prop::collection::vec(slot, 1..4)), 1..4);
        (groups, any::<bool>()).prop_map(|(groups, rows)| {
            let mut names = PaneId::ALL.into_iter();
            let groups = groups
                .into_iter()
                .map(|(ratio, slots)| Group {
                    ratio,
                    slots: slots
                        .into_iter()
                        .filter_map(|(ratio, w, h, priority)| {
                            Some(Slot { pane: names.next()?, ratio, min: (w, h), priority })
                        })
                        .collect(),
                })
                .filter(|g: &Group| !g.slots.is_empty())
                .collect();
            Layout {
                name: "any".into(),
                doc: String::new(),
                axis: if rows { Axis::Rows } else { Axis::Columns },
                groups,
            }
        })
    }

    proptest! {
        #[test]
        fn rectangles_stay_inside_and_never_overlap(
            layout in arbitrary_layout(), w in 0u16..220, h in 0u16..80, pick in 0usize..8
        ) {
            let panes: Vec<_> = layout.panes().collect();
            let focus = panes[pick % panes.len()];
            let area = Rect::new(3, 2, w, h);
            let solved = solve(&layout, area, focus);
            prop_assert_eq!(solved.placed.len() + solved.hidden.len(), panes.len());
            let mut all: Vec<Rect> = solved.placed.iter().map(|p| p.rect).collect();
            all.extend(&solved.separators);
            for (i, a) in all.iter().enumerate() {
                prop_assert_eq!(a.intersection(area), *a);
                for b in &all[i + 1..] {
                    prop_assert!(a.intersection(*b).is_empty(), "{:?} {:?}", a, b);
                }
            }
            if !area.is_empty() {
                let covered: u32 = all.iter().map(|r| r.area()).sum();
                prop_assert_eq!(covered, area.area(), "no cell is left over");
                prop_assert!(solved.find(focus).is_some_and(|p| !p.folded), "the focus is always drawn");
            }
        }
    }

    #[test]
    fn share_respects_minimum_and_ratio() {
        assert_eq!(share(30, &[(1, 1), (2, 1)]), [10, 20]);
        assert_eq!(share(30, &[(1, 20), (2, 1)]), [20, 10]);
        assert_eq!(share(10, &[(0, 1), (1, 3)]), [1, 9]);
        assert_eq!(share(3, &[(1, 5), (1, 5)]), [3, 0]);
    }

    #[test]
    fn the_important_pane_is_open_at_80x21_in_every_layout() {
        for layout in built_in() {
            for focus in layout.panes() {
                let solved = solve(&layout, Rect::new(0, 1, 80, 21), focus);
                let open = solved.placed.iter().filter(|p| !p.folded).count();
                assert!(open >= 2, "{} with {focus:?}", layout.name);
                assert!(solved.find(focus).is_some_and(|p| p.rect.height >= 5), "{} {focus:?}", layout.name);
            }
        }
    }

    #[test]
    fn neighbours_follow_the_drawn_rectangles() {
        let layout = &built_in()[0];
        let solved = solve(layout, Rect::new(0, 0, 200, 60), PaneId::Patches);
        let right = neighbour(&solved, PaneId::Patches, Direction::Right).unwrap();
        assert!(solved.find(right).unwrap().rect.x > 0);
        assert_eq!(neighbour(&solved, right, Direction::Left), Some(PaneId::Patches));
        assert_eq!(neighbour(&solved, PaneId::Patches, Direction::Left), None);
        assert_eq!(neighbour(&solved, PaneId::Patches, Direction::Up), None);
        let below = neighbour(&solved, PaneId::Patches, Direction::Down).unwrap();
        assert_eq!(neighbour(&solved, below, Direction::Up), Some(PaneId::Patches));
    }
}
