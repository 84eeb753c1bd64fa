//! What this version parses and cannot do: it says so in one sentence and never pretends.

use crate::cli::answer::Failed;
use crate::cli::json::ErrorCode;

/// The refusal of a command: `what` completes the sentence "this version cannot …".
pub fn refuse(what: &str, hint: &str) -> Failed {
    Failed::usage(ErrorCode::NotInThisVersion, format!("this version cannot {what}")).hint(hint)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::exit::Status;

    #[test]
    fn a_refusal_is_a_usage_error_with_a_hint() {
        let failed = refuse("write reports", "read the session");
        assert_eq!(failed.status, Status::Usage);
        assert_eq!(failed.to_string(), "this version cannot write reports");
        assert!(failed.error.hint.is_some());
    }
}
