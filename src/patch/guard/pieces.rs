//! Cuts a region into what one guard each holds, and refuses what no guard can hold.
//!
//! Not responsible for names; see `scope`.

use std::ops::Range;

use tree_sitter::Node;

use super::cover::{Both, Cover, Side, around, is_definition};
use super::keep;
use super::region::Region;
use super::{Note, Refusal};

/// What one guard holds. At least one of both sides has statements.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Piece {
    /// Rows of the new statements.
    pub(super) new: Option<Range<usize>>,
    /// Rows of the old statements.
    pub(super) old: Option<Range<usize>>,
    /// Row of the new side that the guard stands before, where there are no new statements.
    pub(super) at: usize,
    /// The blanks that its statements begin with.
    pub(super) indent: String,
    /// The functions and classes around it, innermost first.
    pub(super) home: Vec<String>,
}

/// Pieces of a region, in order.
#[derive(Clone, Debug, Default)]
pub(super) struct Cut {
    pub(super) pieces: Vec<Piece>,
    pub(super) remarks: Vec<Note>,
}

/// The pieces of a region.
///
/// # Errors
/// It changes what a guard cannot hold.
pub(super) fn of_region<'s>(view: &Both<'s>, region: &Region<'s>) -> Result<Cut, Refusal> {
    let mut cut = Cut { remarks: kernels(view, region)?, ..Cut::default() };
    definitions(view, region)?;
    let indent = indent(view, region)?;
    let at = behind_comments(&view.new, &region.new);
    let home = home(view, region);
    let piece = |new, old| Piece { new, old, at, indent: indent.clone(), home: home.clone() };
    let Some(new) = &region.new_cover else {
        let old = region.old_cover.as_ref().map(|cover| cover.rows.clone());
        if region.old_cover.iter().flat_map(|c| &c.statements).any(|s| s.kind() == "future_import_statement") {
            return Err(Refusal::at(region.new.start, "an import of `__future__` holds for the whole file"));
        }
        cut.pieces.push(piece(None, old));
        return Ok(cut);
    };
    let old = region.old_cover.as_ref();
    let words = keep::words(&view.old);
    if let Some(names) = keep::imports((&view.new, new), old.map(|cover| (&view.old, cover)), &words)? {
        let names = names.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ");
        if !names.is_empty() {
            cut.remarks.push(note(new.rows.start, format!("the import of {names} stays: nothing else had that name")));
        }
        return Ok(cut);
    }
    if let Some(old) = old {
        cut.pieces.push(piece(Some(new.rows.clone()), Some(old.rows.clone())));
        return Ok(cut);
    }
    // What is only added can be cut between statements; what no old code can notice stays.
    let mut open: Option<Range<usize>> = None;
    for statement in &new.statements {
        let rows = statement.start_position().row..statement.end_position().row + 1;
        let alone = rows.start >= open.as_ref().map_or(0, |open| open.end);
        let single = Cover { statements: vec![*statement], rows: rows.clone(), column: new.column };
        let text = if let Some(name) = keep::function(&view.new, *statement, &words) {
            Some(format!("the function `{name}` stays: only what the patch adds can call it"))
        } else {
            let names = keep::imports((&view.new, &single), None, &words)?;
            names.map(|names| format!("the import of `{}` stays: nothing else had that name", names.join("`, `")))
        };
        match (text.filter(|_| alone), &mut open) {
            (Some(text), _) => {
                cut.pieces.extend(open.take().map(|rows| piece(Some(rows), None)));
                cut.remarks.push(note(rows.start, text));
            }
            (None, Some(open)) => open.end = rows.end,
            (None, none) => *none = Some(rows),
        }
    }
    cut.pieces.extend(open.map(|rows| piece(Some(rows), None)));
    Ok(cut)
}

fn home(view: &Both<'_>, region: &Region<'_>) -> Vec<String> {
    let of = |side: &Side<'_>, cover: &Cover<'_>| {
        let first = cover.statements.first().copied();
        first.into_iter().flat_map(around).map(|around| name(side, around).to_owned()).collect()
    };
    let new = region.new_cover.as_ref().map(|cover| of(&view.new, cover));
    new.or_else(|| region.old_cover.as_ref().map(|cover| of(&view.old, cover))).unwrap_or_default()
}

fn note(row: usize, text: String) -> Note {
    Note { line: row as u32 + 1, text }
}

/// The row behind the rows of a range without the blank ones at its end.
fn behind_comments(side: &Side<'_>, rows: &Range<usize>) -> usize {
    rows.clone().rfind(|row| !side.row(*row).trim().is_empty()).map_or(rows.start, |row| row + 1)
}

fn indent(view: &Both<'_>, region: &Region<'_>) -> Result<String, Refusal> {
    let of = |side: &Side<'_>, cover: &Option<Cover<'_>>| {
        let cover = cover.as_ref()?;
        side.row(cover.rows.start).get(..cover.column).map(str::to_owned)
    };
    let (new, old) = (of(&view.new, &region.new_cover), of(&view.old, &region.old_cover));
    let indent = new.clone().or_else(|| old.clone()).unwrap_or_default();
    if old.is_some_and(|old| old != indent) || (indent.contains('\t') && indent.contains(' ')) {
        return Err(Refusal::at(region.new.start, "tabs and blanks are mixed in the indentation"));
    }
    Ok(indent)
}

/// Refuses statements of a kernel, and remarks on what is compiled.
fn kernels(view: &Both<'_>, region: &Region<'_>) -> Result<Vec<Note>, Refusal> {
    let mut remarks = Vec::new();
    for (side, cover) in [(&view.new, &region.new_cover), (&view.old, &region.old_cover)] {
        let Some(first) = cover.as_ref().and_then(|cover| cover.statements.first()) else { continue };
        for definition in around(*first) {
            let name = name(side, definition);
            let made = decorators(side, definition);
            if made.iter().any(|decorator| is_kernel_maker(decorator)) || takes_constexpr(side, definition) {
                let why = format!("`{name}` is a kernel that is compiled, and no variable can be read in it");
                return Err(Refusal::at(region.new.start, why));
            }
            if made.iter().any(|decorator| last(decorator) == "compile") && remarks.is_empty() {
                let text = format!("`{name}` is compiled, and reads the variable while that is done");
                remarks.push(note(region.new.start, text));
            }
        }
    }
    Ok(remarks)
}

/// Refuses what changes a definition in part, otherwise than within one block of it.
fn definitions(view: &Both<'_>, region: &Region<'_>) -> Result<(), Refusal> {
    let mut whole: Vec<&str> = Vec::new();
    for (of_new, side, cover) in [(true, &view.new, &region.new_cover), (false, &view.old, &region.old_cover)] {
        let Some(cover) = cover else { continue };
        let within = |node: &Node<'_>| cover.rows.contains(&node.start_position().row) && is_definition(*node);
        for definition in side.source.nodes().into_iter().filter(within) {
            let outer = definition.parent().filter(|outer| outer.kind() == "decorated_definition");
            let first = outer.unwrap_or(definition).start_position().row;
            let body = definition.child_by_field_name("body").map_or(first, |body| body.start_position().row);
            let code = |rows: Range<usize>| rows.filter(|row| side.is_code(*row)).collect::<Vec<_>>();
            let rows = code(first..definition.end_position().row + 1);
            let changed = |rows: &[usize]| rows.iter().filter(|row| view.is_changed(**row, of_new)).count();
            let name = name(side, definition);
            let row = if of_new { first } else { region.new.start };
            match changed(&rows) {
                0 => {}
                all if all == rows.len() && (of_new || !whole.contains(&name)) => whole.push(name),
                all if all == rows.len() || changed(&code(first..body.max(first + 1))) > 0 => {
                    let why = format!("the patch changes how `{name}` is defined, not only what it does");
                    return Err(Refusal::at(row, why));
                }
                _ => {
                    let why = format!("the change within `{name}` cannot be told apart from one outside of it");
                    return Err(Refusal::at(row, why));
                }
            }
        }
    }
    Ok(())
}

pub(super) fn name<'s>(side: &Side<'s>, definition: Node<'_>) -> &'s str {
    definition.child_by_field_name("name").map(|name| side.source.text_of(name)).unwrap_or_default()
}

/// The names of the decorators of a definition, without their arguments.
pub(super) fn decorators<'s>(side: &Side<'s>, definition: Node<'_>) -> Vec<&'s str> {
    let Some(outer) = definition.parent().filter(|outer| outer.kind() == "decorated_definition") else {
        return Vec::new();
    };
    let decorators = outer.children(&mut outer.walk()).filter(|child| child.kind() == "decorator").collect::<Vec<_>>();
    let name = |node: Node<'_>| {
        let text = side.source.text_of(node).trim_start_matches('@').trim_start();
        text.split(|c: char| !(c.is_alphanumeric() || c == '_' || c == '.')).next().unwrap_or_default()
    };
    decorators.into_iter().map(name).collect()
}

fn last(decorator: &str) -> &str {
    decorator.rsplit('.').next().unwrap_or(decorator)
}

/// Whether a decorator makes of a function what a compiler of kernels reads: `triton.jit`, `cute.kernel`, `T.prim_func`.
pub(super) fn is_kernel_maker(decorator: &str) -> bool {
    const MAKERS: &[&str] = &[
        "jit",
        "njit",
        "kernel",
        "prim_func",
        "macro",
        "autotune",
        "heuristics",
        "script",
        "vectorize",
        "guvectorize",
    ];
    MAKERS.contains(&last(decorator))
}

/// Whether a parameter is one of a kernel of Triton, whose decorator may be applied elsewhere.
fn takes_constexpr(side: &Side<'_>, definition: Node<'_>) -> bool {
    let parameters = definition.child_by_field_name("parameters").map(|list| side.source.text_of(list));
    parameters.is_some_and(|text| text.contains("constexpr"))
}
