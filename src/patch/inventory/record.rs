//! Entries of installed files that are not as their wheel has them: which files, and nothing of what changed in them,
//! since a record holds a hash alone.

use super::group::Group;
use super::id;
use crate::patch::facts;
use crate::patch::types::{Entry, FileTouch, Origin, Touch};

/// An entry for each file of a distribution, `NAME-VERSION`, that is not as recorded.
pub fn of_record(distribution: &str, files: &[(String, Touch)]) -> Vec<Entry> {
    let group = |(path, how): &(String, Touch)| Group {
        id: id::of_place(path, None),
        title: match how {
            Touch::Added => format!("{path} is not of {distribution}"),
            Touch::Deleted => format!("{path} of {distribution} is gone"),
            _ => format!("{path} is not as {distribution} has it"),
        },
        origin: Origin::Record { distribution: distribution.to_owned(), path: path.clone() },
        parts: Vec::new(),
    };
    let mut groups: Vec<Group> = files.iter().map(group).collect();
    id::make_unique(&mut groups);
    let entry = |(group, (path, how)): (Group, &(String, Touch))| Entry {
        origin: group.origin,
        files: vec![FileTouch { path: path.clone(), how: how.clone() }],
        phases: facts::of_path(path).phases,
        ..Entry::of_file(&group.id, &group.title, path)
    };
    groups.into_iter().zip(files).map(entry).collect()
}
