//! The API key of a server: read when it is needed, held in memory, never shown.
//!
//! Not responsible for redacting text in which a server repeats a key; see `redact`.

use std::fmt;
use std::time::Duration;

use tokio::process::Command;

use crate::case::KeySource;
use crate::serving::error::ServingError;

const COMMAND_LIMIT: Duration = Duration::from_secs(20);

/// A bearer key. It can be sent, and neither printed nor stored.
#[derive(Clone, PartialEq, Eq)]
pub struct ApiKey(String);

impl ApiKey {
    /// The key with surrounding white space taken off; `None` if nothing is left or it cannot stand in a header.
    pub fn new(text: &str) -> Option<Self> {
        let text = text.trim();
        let sendable = !text.is_empty() && text.bytes().all(|b| b.is_ascii_graphic());
        sendable.then(|| Self(text.to_owned()))
    }

    /// The key itself, for the one request that hands it on.
    pub(super) fn word(&self) -> &str {
        &self.0
    }

    /// The value of the `Authorization` header.
    pub(super) fn bearer(&self) -> String {
        format!("Bearer {}", self.0)
    }
}

impl fmt::Debug for ApiKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ApiKey(withheld)")
    }
}

/// Reads the key from its source. The command runs under `sh -c` on this machine.
///
/// # Errors
/// [`ServingError::NoKey`]: the variable is not set, the command fails, or what they hold is no key.
pub async fn read(source: &KeySource) -> Result<ApiKey, ServingError> {
    let (source_name, text) = match source {
        KeySource::Env(name) => {
            let source_name = format!("variable `{name}`");
            match std::env::var(name) {
                Ok(text) => (source_name, text),
                Err(e) => return Err(ServingError::NoKey { source_name, because: e.to_string() }),
            }
        }
        KeySource::Command(command) => {
            let source_name = format!("command `{command}`");
            match run(command).await {
                Ok(text) => (source_name, text),
                Err(because) => return Err(ServingError::NoKey { source_name, because }),
            }
        }
    };
    ApiKey::new(&text)
        .ok_or_else(|| ServingError::NoKey { source_name, because: "it is empty or no single word".into() })
}

async fn run(command: &str) -> Result<String, String> {
    let child = Command::new("sh").arg("-c").arg(command).kill_on_drop(true).output();
    let output = tokio::time::timeout(COMMAND_LIMIT, child)
        .await
        .map_err(|_| format!("it ran longer than {} s", COMMAND_LIMIT.as_secs()))?
        .map_err(|e| e.to_string())?;
    if !output.status.success() {
        return Err(output.status.to_string());
    }
    String::from_utf8(output.stdout).map_err(|_| "its output is not utf-8".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_never_printed() {
        let key = ApiKey::new(" sk-secret-1 \n").unwrap();
        assert_eq!(key.bearer(), "Bearer sk-secret-1");
        assert!(!format!("{key:?}").contains("secret"));
    }

    #[test]
    fn what_cannot_stand_in_a_header_is_no_key() {
        for text in ["", "  \n", "two words", "line\nbreak", "tab\tbed", "schlüssel"] {
            assert_eq!(ApiKey::new(text), None, "{text:?}");
        }
    }

    #[tokio::test]
    async fn a_command_gives_the_key_or_says_why_not() {
        let key = |c: &str| KeySource::Command(c.into());
        assert_eq!(read(&key("echo sk-1")).await.unwrap(), ApiKey::new("sk-1").unwrap());
        let error = read(&key("echo sk-1; exit 3")).await.unwrap_err().to_string();
        assert!(error.contains("exit status: 3"), "{error}");
        assert!(read(&key("true")).await.unwrap_err().to_string().contains("empty"));
    }

    #[tokio::test]
    async fn a_missing_variable_is_named() {
        let error = read(&KeySource::Env("PATCHBENCH_NO_SUCH_KEY".into())).await.unwrap_err();
        assert!(error.to_string().contains("PATCHBENCH_NO_SUCH_KEY"), "{error}");
    }
}
