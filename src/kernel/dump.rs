//! Recorded activations: tensors that a server wrote down while it computed.
//!
//! Responsible for safetensors files, one or many, and for the names that `SGLang`'s dumper gives its files. Not
//! responsible for `.pt` files: they are pickles, and reading one runs code of its own.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use fs_err as fs;

use crate::engine::procedure::Failure;
use crate::kernel::checkpoint::{Checkpoint, CheckpointError, Stored, Tensor};

/// What a converted file of `SGLang`'s dumper calls its one tensor.
const VALUE: &str = "value";
/// What stands between the parts of its file's name, each `key=value`.
const BETWEEN: &str = "___";

/// How a `.pt` file of torch becomes one that is read here, for each file given.
const CONVERT: &str = "convert it where torch is: python3 -c 'import sys, torch; from safetensors.torch import \
                       save_file; [save_file({\"value\": torch.load(p, map_location=\"cpu\", weights_only=False)\
                       [\"value\"].contiguous()}, p[:-3] + \".safetensors\") for p in sys.argv[1:]]' FILE.pt ..., \
                       with files that you trust, since unpickling runs code";

/// Recorded tensors by name.
///
/// A file is open only while something is read of it: a recording may have more files than a process may hold open.
#[derive(Debug)]
pub struct Dump {
    files: Vec<PathBuf>,
    tensors: BTreeMap<String, Recorded>,
}

/// One recorded tensor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recorded {
    /// Extent of each dimension, slowest first.
    pub shape: Vec<usize>,
    /// Stored type, such as `BF16`.
    pub dtype: String,
    /// What the file's name says of it: `layer_id`, `step`, `rank` and the like; empty for a plain file.
    pub tags: BTreeMap<String, String>,
    file: usize,
    stored_as: String,
}

impl Dump {
    /// Opens files, and folders whose `.safetensors` files are all taken.
    ///
    /// A tensor is called as in its file. The one tensor `value` of a converted file of `SGLang`'s dumper, whose name is
    /// `key=value` parts, is called after its file: `NAME`, or `layers.N.NAME` where a part is `layer_id=N`; where two
    /// would be called the same, such as those of two steps or ranks, by the whole name of their file.
    ///
    /// # Errors
    /// Nothing is there, a file is not whole or a pickle, or two plain files hold tensors of one name.
    pub fn open(paths: &[PathBuf]) -> Result<Self, Failure> {
        let mut places = Vec::new();
        for path in paths {
            places.extend(files_of(path)?);
        }
        let mut dump = Self { files: Vec::new(), tensors: BTreeMap::new() };
        let short = short_names(&places);
        for place in &places {
            dump.add(place, &short)?;
        }
        Ok(dump)
    }

    fn add(&mut self, place: &Path, short: &BTreeMap<String, usize>) -> Result<(), Failure> {
        let checkpoint = Checkpoint::open(place)?;
        let (stem, at) = (stem(place), self.files.len());
        let names = checkpoint.names();
        let tags = if names == [VALUE] { tags(&stem) } else { BTreeMap::new() };
        for stored_as in names {
            let found = checkpoint.find(&stored_as)?;
            let (shape, dtype) = (found.shape.clone(), found.dtype.to_string());
            let name = match short_name(&tags) {
                Some(name) if short.get(&name) == Some(&1) => name,
                Some(_) => stem.clone(),
                None => stored_as.clone(),
            };
            if let Some(before) = self.tensors.get(&name) {
                let (one, other) = (self.file(before).display(), checkpoint.place());
                return Err(Failure::new(format!("`{one}` and `{other}` both hold a tensor `{name}`"))
                    .hint("give the files of one recording alone"));
            }
            self.tensors.insert(name, Recorded { shape, dtype, tags: tags.clone(), file: at, stored_as });
        }
        self.files.push(place.to_owned());
        Ok(())
    }

    /// What was recorded, by name.
    pub fn recorded(&self) -> &BTreeMap<String, Recorded> {
        &self.tensors
    }

    /// The values of a recorded tensor, converted to f64.
    ///
    /// # Errors
    /// There is no such tensor, its type is not converted, or its file cannot be read.
    pub fn tensor(&self, name: &str) -> Result<Tensor, Failure> {
        let recorded = self.find(name)?;
        Ok(Checkpoint::open(self.file(recorded))?.any_tensor(&recorded.stored_as)?)
    }

    /// The first values of a recorded tensor as they are stored, at most so many; nothing else of it is read.
    ///
    /// # Errors
    /// There is no such tensor, or its file cannot be read.
    pub fn start(&self, name: &str, values: usize) -> Result<Stored, Failure> {
        let recorded = self.find(name)?;
        Ok(Checkpoint::open(self.file(recorded))?.start(&recorded.stored_as, values)?)
    }

    /// The file that holds a recorded tensor.
    pub fn file(&self, recorded: &Recorded) -> &Path {
        &self.files[recorded.file]
    }

    fn find(&self, name: &str) -> Result<&Recorded, Failure> {
        let failure =
            || Failure::new(format!("no tensor `{name}` was recorded")).hint(format!("there are {}", self.some()));
        self.tensors.get(name).ok_or_else(failure)
    }

    /// How many tensors there are, and the names of some.
    pub fn some(&self) -> String {
        let some: Vec<&str> = self.tensors.keys().take(8).map(String::as_str).collect();
        match some.len() {
            0 => "none".to_owned(),
            1 => format!("1, {}", some[0]),
            _ => format!("{}, the first of them {}", self.tensors.len(), some.join(", ")),
        }
    }

    /// Where the recording stands, in one line.
    pub fn provenance(&self) -> String {
        match self.files.as_slice() {
            [one] => format!("{} recorded tensors of {}", self.tensors.len(), one.display()),
            [first, ..] => {
                format!(
                    "{} recorded tensors of {} files beside {}",
                    self.tensors.len(),
                    self.files.len(),
                    first.display()
                )
            }
            [] => "nothing recorded".to_owned(),
        }
    }
}

/// The files of a path, in the order of their names.
fn files_of(path: &Path) -> Result<Vec<PathBuf>, Failure> {
    if !path.exists() {
        return Err(Failure::new(format!("`{}` is not there", path.display()))
            .hint("give the folder of a recording, or a file of it, on this machine"));
    }
    if !path.is_dir() {
        return one_file(path).map(|file| vec![file]);
    }
    let of_folder = || -> std::io::Result<Vec<PathBuf>> { fs::read_dir(path)?.map(|e| Ok(e?.path())).collect() };
    let mut all = of_folder().map_err(CheckpointError::Io)?;
    all.sort();
    let wanted: Vec<PathBuf> = all.iter().filter(|file| has_extension(file, "safetensors")).cloned().collect();
    if wanted.is_empty() {
        if let Some(pickle) = all.iter().find(|file| is_pickle(file)) {
            return one_file(pickle).map(|file| vec![file]);
        }
        return Err(Failure::new(format!("`{}` holds no `.safetensors` file", path.display()))
            .hint("give the folder of a recording, or its files"));
    }
    Ok(wanted)
}

fn one_file(path: &Path) -> Result<PathBuf, Failure> {
    if is_pickle(path) {
        return Err(Failure::new(format!("`{}` is a pickle of torch, which is not read", path.display())).hint(CONVERT));
    }
    Ok(path.to_owned())
}

fn is_pickle(path: &Path) -> bool {
    ["pt", "pth", "pkl"].iter().any(|extension| has_extension(path, extension))
}

fn has_extension(path: &Path, extension: &str) -> bool {
    path.extension().is_some_and(|e| e.eq_ignore_ascii_case(extension))
}

fn stem(path: &Path) -> String {
    path.file_stem().unwrap_or_default().to_string_lossy().into_owned()
}

/// The parts of a file's name, where it consists of `key=value` parts with a `name` among them.
fn tags(stem: &str) -> BTreeMap<String, String> {
    let parts: Option<BTreeMap<String, String>> = stem
        .split(BETWEEN)
        .map(|part| part.split_once('=').map(|(key, value)| (key.to_owned(), value.to_owned())))
        .collect();
    parts.filter(|parts| parts.contains_key("name")).unwrap_or_default()
}

fn short_name(tags: &BTreeMap<String, String>) -> Option<String> {
    let name = tags.get("name")?;
    Some(match tags.get("layer_id") {
        Some(layer) => format!("layers.{layer}.{name}"),
        None => name.clone(),
    })
}

/// How many files would be called by each short name.
fn short_names(places: &[PathBuf]) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    for name in places.iter().filter_map(|place| short_name(&tags(&stem(place)))) {
        *counts.entry(name).or_insert(0) += 1;
    }
    counts
}

#[cfg(test)]
mod tests {
    use safetensors::Dtype;
    use safetensors::tensor::{TensorView, serialize};

    use super::*;

    fn write(folder: &Path, name: &str, tensors: &[(&str, f32)]) -> PathBuf {
        let data: Vec<[u8; 4]> = tensors.iter().map(|(_, value)| value.to_le_bytes()).collect();
        let views = tensors
            .iter()
            .zip(&data)
            .map(|((name, _), bytes)| (*name, TensorView::new(Dtype::F32, vec![1, 1], bytes).unwrap()));
        let path = folder.join(name);
        fs::write(&path, serialize(views, None).unwrap()).unwrap();
        path
    }

    fn names(dump: &Dump) -> Vec<&str> {
        dump.recorded().keys().map(String::as_str).collect()
    }

    #[test]
    fn plain_files_give_their_own_names() {
        let folder = tempfile::tempdir().unwrap();
        let one = write(folder.path(), "one.safetensors", &[("x", 1.0), ("y", 2.0)]);
        let two = write(folder.path(), "two.safetensors", &[("value", 3.0)]);
        let dump = Dump::open(&[one, two]).unwrap();
        assert_eq!(names(&dump), ["value", "x", "y"]);
        assert_eq!(dump.tensor("y").unwrap(), Tensor { shape: vec![1, 1], values: vec![2.0] });
        assert_eq!((dump.recorded()["x"].dtype.as_str(), &dump.recorded()["x"].shape), ("F32", &vec![1, 1]));
        let all = Dump::open(&[folder.path().to_owned()]).unwrap();
        assert_eq!(names(&all), names(&dump));
        assert!(all.provenance().starts_with("3 recorded tensors of 2 files beside "), "{}", all.provenance());
    }

    #[test]
    fn converted_files_of_the_dumper_are_called_by_name_and_layer() {
        let folder = tempfile::tempdir().unwrap();
        let file = |step: u32, name: &str, layer: &str, value: f32| {
            let stem = format!("step={step}___rank=0___dump_index=1___name={name}___recompute_status=disabled{layer}");
            write(folder.path(), &format!("{stem}.safetensors"), &[("value", value)]);
        };
        file(0, "hidden", "___layer_id=3", 1.0);
        file(0, "logits", "", 2.0);
        file(0, "q", "", 3.0);
        file(1, "q", "", 4.0);
        let dump = Dump::open(&[folder.path().to_owned()]).unwrap();
        let twice = |step: u32| format!("step={step}___rank=0___dump_index=1___name=q___recompute_status=disabled");
        assert_eq!(names(&dump), ["layers.3.hidden", "logits", twice(0).as_str(), twice(1).as_str()]);
        assert_eq!(dump.tensor(&twice(1)).unwrap().values, [4.0]);
        let tags = &dump.recorded()["layers.3.hidden"].tags;
        assert_eq!((tags["layer_id"].as_str(), tags["rank"].as_str()), ("3", "0"));
    }

    #[test]
    fn the_start_of_a_tensor_is_its_first_values() {
        let folder = tempfile::tempdir().unwrap();
        let file = write(folder.path(), "x.safetensors", &[("x", 1.5), ("y", 2.5)]);
        let dump = Dump::open(std::slice::from_ref(&file)).unwrap();
        let start = |values: usize| dump.start("y", values).unwrap();
        assert_eq!((start(1).values().unwrap(), start(9).values().unwrap()), (vec![2.5], vec![2.5]));
        assert_eq!((start(0).bytes, start(0).shape), (vec![], vec![1, 1]));
        assert_eq!(dump.file(&dump.recorded()["y"]), file);
    }

    #[test]
    fn one_name_in_two_plain_files_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        write(folder.path(), "1.safetensors", &[("x", 1.0)]);
        write(folder.path(), "2.safetensors", &[("x", 2.0)]);
        let failure = Dump::open(&[folder.path().to_owned()]).unwrap_err();
        assert!(failure.message.ends_with("both hold a tensor `x`"), "{}", failure.message);
    }

    #[test]
    fn a_pickle_is_refused_with_the_way_to_convert_it() {
        let folder = tempfile::tempdir().unwrap();
        let pickle = folder.path().join("step=0___name=q.pt");
        fs::write(&pickle, b"PK\x03\x04").unwrap();
        for path in [&pickle, folder.path()] as [&Path; 2] {
            let failure = Dump::open(&[path.to_owned()]).unwrap_err();
            assert_eq!(failure.message, format!("`{}` is a pickle of torch, which is not read", pickle.display()));
            let hint = failure.hint.unwrap();
            assert!(hint.contains("save_file({\"value\": torch.load(") && !hint.contains("  "), "{hint}");
        }
    }

    #[test]
    fn what_is_not_there_is_said() {
        let folder = tempfile::tempdir().unwrap();
        let empty = Dump::open(&[folder.path().to_owned()]).unwrap_err();
        assert!(empty.message.ends_with("holds no `.safetensors` file"), "{}", empty.message);
        let absent = Dump::open(&[folder.path().join("no.safetensors")]).unwrap_err();
        assert!(absent.message.ends_with("no.safetensors` is not there"), "{}", absent.message);
        let file = write(folder.path(), "x.safetensors", &[("x", 1.0)]);
        let failure = Dump::open(&[file]).unwrap().tensor("y").unwrap_err();
        assert_eq!(failure.hint.as_deref(), Some("there are 1, x"));
        assert_eq!(Dump::open(&[]).unwrap().provenance(), "nothing recorded");
    }
}
