//! NVIDIA's run-time compiler, which is a library of its own and need not be there.
//!
//! Responsible for finding it, for saying where it was looked for, and for compiling one text. Not
//! responsible for what is compiled, nor for running it.
//!
//! `cudarc` looks NVRTC up by name alone and gives no machine code, so the six functions are called
//! here.

#![expect(unsafe_code, reason = "functions of a C library are called")]

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::path::{Path, PathBuf};

use libloading::os::unix::{Library, RTLD_GLOBAL, RTLD_NOW, Symbol};

use crate::engine::procedure::Failure;

type Program = *mut c_void;
type Create = unsafe extern "C" fn(
    *mut Program,
    *const c_char,
    *const c_char,
    c_int,
    *const *const c_char,
    *const *const c_char,
) -> c_int;
type Compile = unsafe extern "C" fn(Program, c_int, *const *const c_char) -> c_int;
type Size = unsafe extern "C" fn(Program, *mut usize) -> c_int;
type Get = unsafe extern "C" fn(Program, *mut c_char) -> c_int;
type Destroy = unsafe extern "C" fn(*mut Program) -> c_int;
type Version = unsafe extern "C" fn(*mut c_int, *mut c_int) -> c_int;
type Words = unsafe extern "C" fn(c_int) -> *const c_char;

/// The compiler.
#[derive(Debug)]
pub struct Nvrtc {
    library: Library,
    /// Its helper library, which it looks for by name once it compiles.
    _builtins: Option<Library>,
    /// Where it was found.
    pub place: String,
    /// Its version, such as 13 and 0.
    pub version: (i32, i32),
}

/// What is made of a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Code {
    /// Machine code of the architecture.
    Cubin,
    /// Text that a driver compiles further.
    Ptx,
}

/// A compiled text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Compiled {
    /// Machine code or PTX.
    pub code: Vec<u8>,
    /// What the compiler said, registers and spills among it.
    pub log: String,
}

impl Nvrtc {
    /// Loads it from the first of these places where it is.
    ///
    /// # Errors
    /// It is nowhere; the sentence names the places.
    pub fn load(places: &[PathBuf]) -> Result<Self, Failure> {
        let mut broken = None;
        for place in places {
            match Self::open(place) {
                Ok(found) => return Ok(found),
                // A bare name is for the system's loader to find; a path that exists and does not load is worth saying.
                Err(why) if place.is_absolute() || places.len() == 1 => broken = broken.or(Some((place, why))),
                Err(_) => {}
            }
        }
        let message = match broken {
            Some((place, why)) => format!("NVRTC at `{}` cannot be used: {why}", place.display()),
            None => "NVRTC, NVIDIA's run-time compiler, was not found: not among the system's libraries, under \
                     CUDA_HOME, or in the site-packages of the active Python"
                .into(),
        };
        Err(Failure::new(message)
            .hint("`pip install nvidia-cuda-nvrtc`, or set PATCHBENCH_NVRTC to the path of libnvrtc.so"))
    }

    fn open(place: &Path) -> Result<Self, String> {
        let builtins = builtins_beside(place).and_then(|path| load(&path).ok());
        let library = load(place)?;
        let mut version = (0, 0);
        let ask: Symbol<Version> = symbol(&library, c"nvrtcVersion")?;
        // SAFETY: the function has this signature in every version, and writes two numbers.
        let status = unsafe { ask(&raw mut version.0, &raw mut version.1) };
        if status != 0 {
            return Err(format!("it does not say its version (status {status})"));
        }
        Ok(Self { library, _builtins: builtins, place: place.display().to_string(), version })
    }

    /// Compiles a text for one architecture; `options` has it.
    ///
    /// # Errors
    /// It does not compile; the sentence is the compiler's first complaint.
    pub fn compile(&self, name: &str, text: &str, options: &[String], code: Code) -> Result<Compiled, Failure> {
        self.made(name, text, options, code).map_err(|why| match why {
            Why::Missing(function) => Failure::new(format!("NVRTC at `{}` has no {function}", self.place))
                .hint("it is too old: 12.0 or newer is needed"),
            Why::Status(status) => Failure::new(format!("NVRTC failed on `{name}`: {status}")),
            Why::Log(log) => {
                let first = log.lines().find(|l| l.contains("error")).or_else(|| log.lines().next());
                Failure::new(format!("`{name}` does not compile: {}", first.unwrap_or("no reason was given").trim()))
            }
        })
    }

    fn made(&self, name: &str, text: &str, options: &[String], code: Code) -> Result<Compiled, Why> {
        let words = |text: &str| CString::new(text).map_err(|_| Why::Status("it has a zero byte".into()));
        let (source, name) = (words(text)?, words(name)?);
        let options: Vec<CString> = options.iter().map(|o| words(o)).collect::<Result<_, _>>()?;
        let options: Vec<*const c_char> = options.iter().map(|o| o.as_ptr()).collect();
        let create: Symbol<Create> = self.function(c"nvrtcCreateProgram")?;
        let compile: Symbol<Compile> = self.function(c"nvrtcCompileProgram")?;
        let destroy: Symbol<Destroy> = self.function(c"nvrtcDestroyProgram")?;
        let (size, get) = match code {
            Code::Cubin => (c"nvrtcGetCUBINSize", c"nvrtcGetCUBIN"),
            Code::Ptx => (c"nvrtcGetPTXSize", c"nvrtcGetPTX"),
        };
        let (code_of, log_of) =
            (self.bytes_of(size, get)?, self.bytes_of(c"nvrtcGetProgramLogSize", c"nvrtcGetProgramLog")?);
        let mut program: Program = std::ptr::null_mut();
        // SAFETY: source and name outlive the program, which is destroyed below; there are no headers.
        let status =
            unsafe { create(&raw mut program, source.as_ptr(), name.as_ptr(), 0, std::ptr::null(), std::ptr::null()) };
        if status != 0 {
            return Err(Why::Status(self.status(status)));
        }
        // SAFETY: the options outlive the call.
        let status = unsafe { compile(program, options.len() as c_int, options.as_ptr()) };
        let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).trim_end_matches('\0').to_owned();
        let log = log_of(program).map(text).unwrap_or_default();
        let made = match status {
            0 => code_of(program).map_err(|status| Why::Status(self.status(status))),
            // 6 is a compilation error, whose reason is in the log.
            6 => Err(Why::Log(log.clone())),
            other => Err(Why::Status(self.status(other))),
        };
        // SAFETY: the program was created above and is not used again.
        unsafe { destroy(&raw mut program) };
        Ok(Compiled { code: made?, log })
    }

    /// A function that copies something of a program out.
    fn bytes_of(&self, size: &CStr, get: &CStr) -> Result<impl Fn(Program) -> Result<Vec<u8>, c_int>, Why> {
        let (size, get): (Symbol<Size>, Symbol<Get>) = (self.function(size)?, self.function(get)?);
        Ok(move |program| {
            let mut count = 0;
            // SAFETY: the program lives, and `count` is where the size is written.
            let status = unsafe { size(program, &raw mut count) };
            if status != 0 {
                return Err(status);
            }
            let mut bytes = vec![0_u8; count];
            // SAFETY: the buffer has the size that was asked for.
            let status = unsafe { get(program, bytes.as_mut_ptr().cast()) };
            if status == 0 { Ok(bytes) } else { Err(status) }
        })
    }

    fn function<T>(&self, name: &CStr) -> Result<Symbol<T>, Why> {
        symbol(&self.library, name).map_err(|_| Why::Missing(name.to_string_lossy().into_owned()))
    }

    fn status(&self, status: c_int) -> String {
        let unknown = format!("status {status}");
        let Ok(words) = symbol::<Words>(&self.library, c"nvrtcGetErrorString") else { return unknown };
        // SAFETY: it gives a constant text for every number.
        let text = unsafe { words(status) };
        if text.is_null() {
            return unknown;
        }
        // SAFETY: it is a text of the library that ends in zero and is never freed.
        unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
    }
}

enum Why {
    Missing(String),
    Status(String),
    Log(String),
}

fn load(path: &Path) -> Result<Library, String> {
    // SAFETY: libraries of this name are NVIDIA's, whose initialisers have no conditions.
    unsafe { Library::open(Some(path), RTLD_NOW | RTLD_GLOBAL) }.map_err(|e| e.to_string())
}

fn symbol<T>(library: &Library, name: &CStr) -> Result<Symbol<T>, String> {
    // SAFETY: every caller names the type that NVRTC's header gives the function.
    unsafe { library.get(name) }.map_err(|e| e.to_string())
}

/// The helper library in the same folder.
fn builtins_beside(place: &Path) -> Option<PathBuf> {
    entries(place.parent()?, "libnvrtc-builtins.so").pop()
}

/// Paths in a folder whose names begin so, ascending; none where it cannot be read.
fn entries(folder: &Path, begin: &str) -> Vec<PathBuf> {
    let Ok(all) = fs_err::read_dir(folder) else { return Vec::new() };
    let begins = |path: &PathBuf| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(begin));
    let mut found: Vec<PathBuf> = all.filter_map(|entry| Some(entry.ok()?.path())).filter(begins).collect();
    found.sort();
    found
}

/// Where the compiler may lie: the place that `PATCHBENCH_NVRTC` names and no other, else `CUDA_HOME`, the active
/// Python's site-packages, the system's libraries, in this order.
///
/// `env` gives an environment variable.
pub fn places(env: &dyn Fn(&str) -> Option<String>) -> Vec<PathBuf> {
    if let Some(named) = env("PATCHBENCH_NVRTC") {
        return vec![PathBuf::from(named)];
    }
    let mut places: Vec<PathBuf> = Vec::new();
    // The newest first; variants and the helper are no compiler.
    let compilers = |folder: &Path| entries(folder, "libnvrtc.so").into_iter().rev();
    let homes = ["CUDA_HOME", "CUDA_PATH"].into_iter().filter_map(env).chain(["/usr/local/cuda".to_owned()]);
    for home in homes {
        for folder in ["lib64", "lib", "targets/x86_64-linux/lib"] {
            places.extend(compilers(&Path::new(&home).join(folder)));
        }
    }
    for packages in site_packages(env) {
        for folder in ["nvidia/cu13/lib", "nvidia/cuda_nvrtc/lib", "nvidia/cu12/lib"] {
            places.extend(compilers(&packages.join(folder)));
        }
    }
    places.extend(["libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so"].map(PathBuf::from));
    places
}

/// Folders of packages of the active Python: of its environment, of the first `python3` that is found, of `PYTHONPATH`.
fn site_packages(env: &dyn Fn(&str) -> Option<String>) -> Vec<PathBuf> {
    let mut roots: Vec<PathBuf> =
        ["VIRTUAL_ENV", "CONDA_PREFIX"].into_iter().filter_map(env).map(PathBuf::from).collect();
    let search = env("PATH").unwrap_or_default();
    let python = std::env::split_paths(&search).map(|folder| folder.join("python3")).find(|path| path.is_file());
    roots.extend(python.and_then(|p| Some(p.parent()?.parent()?.to_owned())));
    roots.extend(["/usr/local", "/usr"].map(PathBuf::from));
    let mut found: Vec<PathBuf> =
        env("PYTHONPATH").iter().flat_map(|paths| std::env::split_paths(paths).collect::<Vec<_>>()).collect();
    for root in roots {
        let versions = entries(&root.join("lib"), "python3");
        for version in versions.iter().rev() {
            found.extend(["site-packages", "dist-packages"].map(|name| version.join(name)));
        }
    }
    let mut unique: Vec<PathBuf> = Vec::new();
    for path in found {
        if !unique.contains(&path) {
            unique.push(path);
        }
    }
    unique
}

#[cfg(test)]
mod tests {
    use super::*;

    fn touch(root: &Path, path: &str) -> PathBuf {
        let path = root.join(path);
        fs_err::create_dir_all(path.parent().unwrap()).unwrap();
        fs_err::write(&path, "").unwrap();
        path
    }

    #[test]
    fn the_named_place_is_the_only_one_and_the_system_comes_last() {
        let dir = tempfile::tempdir().unwrap();
        let home = touch(dir.path(), "cuda/lib64/libnvrtc.so.12");
        touch(dir.path(), "cuda/lib64/libnvrtc-builtins.so.12.8");
        let package = touch(dir.path(), "venv/lib/python3.12/site-packages/nvidia/cu13/lib/libnvrtc.so.13");
        touch(dir.path(), "venv/bin/python3");
        let venv = dir.path().join("venv").display().to_string();
        let cuda = dir.path().join("cuda").display().to_string();
        let env = |name: &str| match name {
            "CUDA_HOME" => Some(cuda.clone()),
            "PATH" => Some(format!("/nowhere:{venv}/bin")),
            _ => None,
        };
        let places = places(&env);
        let at = |path: &Path| places.iter().position(|p| p == path).unwrap_or(usize::MAX);
        assert_eq!(at(&home), 0, "{places:?}");
        assert!(at(&package) > 0 && at(&package) < at(Path::new("libnvrtc.so.13")), "{places:?}");
        assert!(!places.iter().any(|p| p.display().to_string().contains("builtins")));
        let named =
            |name: &str| if name == "PATCHBENCH_NVRTC" { Some("/here/libnvrtc.so".to_owned()) } else { env(name) };
        assert_eq!(super::places(&named), [Path::new("/here/libnvrtc.so")]);
    }

    #[test]
    fn a_library_that_is_nowhere_or_broken_is_one_sentence() {
        let nowhere =
            Nvrtc::load(&["libnvrtc-of-nobody.so", "libnvrtc-of-nobody.so.1"].map(PathBuf::from)).unwrap_err();
        assert!(nowhere.message.starts_with("NVRTC, NVIDIA's run-time compiler, was not found"), "{}", nowhere.message);
        let dir = tempfile::tempdir().unwrap();
        let broken = touch(dir.path(), "libnvrtc.so.13");
        let failure = Nvrtc::load(&[broken]).unwrap_err();
        assert!(failure.message.contains("cannot be used: "), "{}", failure.message);
        assert!(failure.hint.unwrap().contains("PATCHBENCH_NVRTC"));
    }
}
