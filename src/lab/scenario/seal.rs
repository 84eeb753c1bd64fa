//! Sealed deployments: a scenario in a file that shows nothing, and the counter of its boots.
//!
//! The seal keeps honest people from reading the answer by accident; it is no secret from anyone who
//! runs `lab reveal`.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::Scenario;

const NONCE: usize = 16;
const TAG: usize = 16;
/// All deployments have a multiple of this size, so that the size tells nothing.
const BLOCK: usize = 1024;

/// Why a deployment cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum SealError {
    /// The file system refused.
    #[error("{0}")]
    Io(#[from] std::io::Error),
    /// The file is not a deployment, or is damaged.
    #[error("`{0}` is not a lab deployment, or it is damaged")]
    NotADeployment(PathBuf),
    /// The boot counter holds something else.
    #[error("the boot counter `{0}` does not hold a number")]
    Counter(PathBuf),
}

/// What a deployment file holds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Deployment {
    /// The scenario.
    pub scenario: Scenario,
    /// Seed of every draw.
    pub seed: u64,
}

/// Writes `scenario` as an opaque file `lab.deployment` into `dir`, with a boot counter at 0 beside it.
///
/// # Errors
/// When a file cannot be written.
pub fn seal(scenario: &Scenario, seed: u64, dir: &Path) -> Result<PathBuf, SealError> {
    let path = dir.join("lab.deployment");
    let deployment = Deployment { scenario: scenario.clone(), seed };
    fs_err::write(&path, encode(&deployment)?)?;
    fs_err::write(counter_path(&path), "0\n")?;
    Ok(path)
}

/// Reads a deployment back.
///
/// # Errors
/// When the file cannot be read or is not a deployment.
pub fn reveal(path: &Path) -> Result<Deployment, SealError> {
    let bytes = fs_err::read(path)?;
    decode(&bytes).ok_or_else(|| SealError::NotADeployment(path.to_owned()))
}

/// Counts one more boot of a deployment and returns its number, from 1.
///
/// # Errors
/// When the counter cannot be read or written.
pub fn next_boot(path: &Path) -> Result<u64, SealError> {
    use std::io::{Read as _, Seek as _, Write as _};
    let counter = counter_path(path);
    let mut file = fs_err::OpenOptions::new().read(true).write(true).create(true).truncate(false).open(&counter)?;
    // Several servers of one deployment may start at once; the lock ends with the file.
    rustix::fs::flock(file.file(), rustix::fs::FlockOperation::LockExclusive).map_err(std::io::Error::from)?;
    let mut text = String::new();
    file.read_to_string(&mut text)?;
    let before: u64 = match text.trim() {
        "" => 0,
        number => number.parse().map_err(|_| SealError::Counter(counter.clone()))?,
    };
    file.set_len(0)?;
    file.rewind()?;
    writeln!(file, "{}", before + 1)?;
    Ok(before + 1)
}

fn counter_path(path: &Path) -> PathBuf {
    path.with_extension("boots")
}

fn encode(deployment: &Deployment) -> std::io::Result<Vec<u8>> {
    let json = serde_json::to_vec(deployment)?;
    let packed = zstd::encode_all(json.as_slice(), 9)?;
    let mut body = (packed.len() as u32).to_le_bytes().to_vec();
    body.extend(packed);
    let padded = (NONCE + TAG + body.len()).div_ceil(BLOCK) * BLOCK - NONCE - TAG;
    body.resize(padded, 0);
    let nonce = &blake3::keyed_hash(&blake3::derive_key("patchbench lab nonce", &deployment.seed.to_le_bytes()), &json);
    let nonce = &nonce.as_bytes()[..NONCE];
    let tag = tag(nonce, &body);
    apply_stream(nonce, &mut body);
    Ok([nonce, &tag, &body].concat())
}

fn decode(bytes: &[u8]) -> Option<Deployment> {
    if bytes.len() < NONCE + TAG + 4 {
        return None;
    }
    let (nonce, rest) = bytes.split_at(NONCE);
    let (found, body) = rest.split_at(TAG);
    let mut body = body.to_vec();
    apply_stream(nonce, &mut body);
    if tag(nonce, &body) != found {
        return None;
    }
    let length = u32::from_le_bytes([body[0], body[1], body[2], body[3]]) as usize;
    let json = zstd::decode_all(body.get(4..4 + length)?).ok()?;
    serde_json::from_slice(&json).ok()
}

fn tag(nonce: &[u8], body: &[u8]) -> Vec<u8> {
    let key = blake3::derive_key("patchbench lab deployment tag", nonce);
    blake3::keyed_hash(&key, body).as_bytes()[..TAG].to_vec()
}

fn apply_stream(nonce: &[u8], body: &mut [u8]) {
    let mut stream = vec![0; body.len()];
    blake3::Hasher::new_derive_key("patchbench lab deployment stream").update(nonce).finalize_xof().fill(&mut stream);
    for (b, s) in body.iter_mut().zip(&stream) {
        *b ^= s;
    }
}

#[cfg(test)]
mod tests {
    use super::super::{named, names};
    use super::*;

    #[test]
    fn what_is_sealed_is_revealed() {
        let dir = tempfile::tempdir().unwrap();
        for name in names() {
            let path = seal(&named(name).unwrap(), 42, dir.path()).unwrap();
            let back = reveal(&path).unwrap();
            assert_eq!((back.scenario.name.as_str(), back.seed), (name, 42));
        }
    }

    #[test]
    fn the_file_shows_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let mut sizes = std::collections::BTreeSet::new();
        for name in names() {
            let path = seal(&named(name).unwrap(), 1, dir.path()).unwrap();
            let bytes = fs_err::read(&path).unwrap();
            sizes.insert(bytes.len());
            let text = String::from_utf8_lossy(&bytes);
            for word in ["incident", "index", "clean", "triton", "beta", "fault"] {
                assert!(!text.contains(word), "{word} is readable");
            }
            let longest = bytes.split(|b| !b.is_ascii_graphic()).map(<[u8]>::len).max().unwrap_or(0);
            assert!(longest < 24, "{longest} readable characters in a row");
        }
        assert_eq!(sizes.len(), 1, "the size tells nothing");
    }

    #[test]
    fn damage_is_noticed() {
        let dir = tempfile::tempdir().unwrap();
        let path = seal(&named("incident").unwrap(), 1, dir.path()).unwrap();
        let mut bytes = fs_err::read(&path).unwrap();
        bytes[100] ^= 1;
        fs_err::write(&path, bytes).unwrap();
        assert!(matches!(reveal(&path), Err(SealError::NotADeployment(_))));
        fs_err::write(&path, "name = 1").unwrap();
        assert!(matches!(reveal(&path), Err(SealError::NotADeployment(_))));
    }

    #[test]
    fn boots_are_counted() {
        let dir = tempfile::tempdir().unwrap();
        let path = seal(&named("clean").unwrap(), 1, dir.path()).unwrap();
        assert_eq!([next_boot(&path).unwrap(), next_boot(&path).unwrap()], [1, 2]);
        let all: Vec<u64> = std::thread::scope(|scope| {
            let starts: Vec<_> = (0..8).map(|_| scope.spawn(|| next_boot(&path).unwrap())).collect();
            starts.into_iter().map(|s| s.join().unwrap()).collect()
        });
        let distinct: std::collections::BTreeSet<_> = all.into_iter().collect();
        assert_eq!(distinct.into_iter().collect::<Vec<_>>(), (3..=10).collect::<Vec<_>>(), "starts at once differ");
        fs_err::write(counter_path(&path), "many").unwrap();
        assert!(matches!(next_boot(&path), Err(SealError::Counter(_))));
    }
}
