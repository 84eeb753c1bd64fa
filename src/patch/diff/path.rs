//! Reads the paths of a diff's headers: quoted, escaped, prefixed, followed by dates.
//!
//! Not responsible for whether such files exist.

/// Prefixes that git writes before the two paths, with and without `diff.mnemonicPrefix`.
const PREFIXES: &[&str] = &["a/", "b/", "c/", "i/", "o/", "w/"];

/// What stands for a file that is not there.
const NOWHERE: &str = "/dev/null";

/// The path of a `---` or `+++` line without its mark, and what follows it after a tab.
pub(super) fn marked(text: &str) -> (String, &str) {
    if let Some((path, rest)) = quoted(text) {
        return (path, rest.trim_start());
    }
    let (path, rest) = text.split_once('\t').unwrap_or((text, ""));
    (path.trim_end_matches(' ').to_owned(), rest)
}

/// A path as `rename from` and its like have it.
pub(super) fn plain(text: &str) -> String {
    quoted(text).map_or_else(|| text.to_owned(), |(path, _)| path)
}

/// The two paths of a `diff --git` line, with their prefixes; `None` where they cannot be told apart.
pub(super) fn pair(text: &str) -> Option<(String, String)> {
    if let Some((old, rest)) = quoted(text) {
        return Some((old, plain(rest.trim_start())));
    }
    if let Some(at) = text.find(" \"") {
        let (old, new) = text.split_at(at);
        return Some((old.to_owned(), plain(new.trim_start())));
    }
    let equal = |(at, _): (usize, &str)| {
        let (old, new) = (text.get(..at)?, text.get(at + 1..)?);
        (bare(old) == bare(new) && !old.is_empty()).then(|| (old.to_owned(), new.to_owned()))
    };
    text.match_indices(' ').find_map(equal).or_else(|| {
        let (old, new) = text.split_once(' ')?;
        (!new.contains(' ')).then(|| (old.to_owned(), new.to_owned()))
    })
}

/// Both paths as the tree names them; `None` is a side where the file is not there.
pub(super) fn stripped(old: &str, new: &str) -> (Option<String>, Option<String>) {
    let there = |path: &str| (path != NOWHERE).then(|| path.to_owned());
    let prefixed = |path: &str| path == NOWHERE || bare(path) != path;
    if prefixed(old) && prefixed(new) {
        return (there(old).map(|path| bare(&path).to_owned()), there(new).map(|path| bare(&path).to_owned()));
    }
    (there(old), there(new))
}

fn bare(path: &str) -> &str {
    PREFIXES.iter().find_map(|prefix| path.strip_prefix(prefix)).unwrap_or(path)
}

/// A path in double quotes with the escapes of C, and the text behind it.
fn quoted(text: &str) -> Option<(String, &str)> {
    let body = text.strip_prefix('"')?;
    let mut bytes = Vec::new();
    let mut rest = body.bytes().enumerate();
    while let Some((at, byte)) = rest.next() {
        match byte {
            b'"' => return Some((String::from_utf8_lossy(&bytes).into_owned(), body.get(at + 1..)?)),
            b'\\' => {
                let (_, escape) = rest.next()?;
                bytes.push(match escape {
                    b'a' => 7,
                    b'b' => 8,
                    b't' => b'\t',
                    b'n' => b'\n',
                    b'v' => 11,
                    b'f' => 12,
                    b'r' => b'\r',
                    b'0'..=b'7' => {
                        let (second, third) = (rest.next()?.1, rest.next()?.1);
                        octal([escape, second, third])?
                    }
                    other => other,
                });
            }
            other => bytes.push(other),
        }
    }
    None
}

fn octal(digits: [u8; 3]) -> Option<u8> {
    u8::from_str_radix(std::str::from_utf8(&digits).ok()?, 8).ok()
}
