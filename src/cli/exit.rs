//! Exit statuses. Scripts rely on these numbers.

use std::process::ExitCode;

/// How a run ended, as the caller sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// Done, no finding.
    Done,
    /// A finding: a disagreement, a symptom, a guilty patch.
    Finding,
    /// The command line, the configuration or the case is wrong.
    Usage,
    /// The world failed: unreachable, no device, too few trials left after voids.
    World,
    /// A symptom without a verdict.
    NoVerdict,
    /// Interrupted by the user.
    Interrupted,
}

/// Every status with its number and its meaning, in the order of the numbers.
pub const ALL: [(Status, u8, &str); 6] = [
    (Status::Done, 0, "done, no finding"),
    (Status::Finding, 1, "a finding: a disagreement, a symptom, a guilty patch"),
    (Status::Usage, 2, "the command line, the configuration or the case is wrong"),
    (Status::World, 3, "the world failed: unreachable, no device, too few trials left after voids"),
    (Status::NoVerdict, 4, "a symptom without a verdict"),
    (Status::Interrupted, 130, "interrupted"),
];

impl Status {
    /// The number that the process ends with.
    pub fn code(self) -> u8 {
        ALL.iter().find(|(status, ..)| *status == self).map_or(3, |(_, code, _)| *code)
    }
}

impl From<Status> for ExitCode {
    fn from(status: Status) -> Self {
        Self::from(status.code())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_status_has_its_documented_number() {
        let codes =
            [Status::Done, Status::Finding, Status::Usage, Status::World, Status::NoVerdict, Status::Interrupted]
                .map(Status::code);
        assert_eq!(codes, [0, 1, 2, 3, 4, 130]);
    }
}
