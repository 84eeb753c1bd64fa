//! Finds the end of a combined hunk, which has one old side for each parent of a merge.
//!
//! Not responsible for what it changes: with several old sides there is no single change.

/// Number of lines that the combined hunk at the head of these lines takes; `None` where there is none.
pub(super) fn length(lines: &[&str]) -> Option<usize> {
    let header = lines.first()?;
    let marks = header.bytes().take_while(|byte| *byte == b'@').count();
    let parents = marks.checked_sub(1).filter(|parents| *parents >= 2)?;
    let body = header.get(marks..)?;
    let end = body.find(&"@".repeat(marks))?;
    let mut left: Vec<u32> = body.get(..end)?.split_whitespace().map(count).collect::<Option<_>>()?;
    if left.len() != parents + 1 {
        return None;
    }
    let mut at = 1;
    while let Some(line) = lines.get(at) {
        if line.starts_with('\\') {
            at += 1;
            continue;
        }
        if left.iter().all(|left| *left == 0) {
            break;
        }
        let Some(columns) = line.as_bytes().get(..parents) else { break };
        if !columns.iter().all(|column| matches!(column, b' ' | b'+' | b'-')) {
            break;
        }
        let gone = columns.contains(&b'-');
        let counted = if gone { b'-' } else { b' ' };
        for (left, column) in left.iter_mut().zip(columns) {
            *left = left.saturating_sub(u32::from(*column == counted));
        }
        if let Some(new) = left.last_mut() {
            *new = new.saturating_sub(u32::from(!gone));
        }
        at += 1;
    }
    Some(at)
}

/// The number of lines of `-START,COUNT` or `+START`.
fn count(range: &str) -> Option<u32> {
    let range = range.strip_prefix(['-', '+'])?;
    match range.split_once(',') {
        Some((_, count)) => count.parse().ok(),
        None => range.parse::<u32>().ok().map(|_| 1),
    }
}
