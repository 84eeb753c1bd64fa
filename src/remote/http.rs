//! The way from a target of the case to the client that asks it.
//!
//! Not responsible for any request; those are `serving::client`'s.

use std::time::Duration;

use crate::case::Target;
use crate::engine::procedure::Failure;
use crate::serving::client::{Client, Timeouts};
use crate::serving::error::ServingError;
use crate::serving::key;

/// A server that is looked at must not hold up the look.
const LIMITS: Timeouts = Timeouts {
    connect: Duration::from_secs(2),
    plain: Duration::from_secs(10),
    first_token: Duration::from_mins(2),
    between: Duration::from_mins(1),
};

/// The way to a target, with its key read now.
///
/// # Errors
/// The key cannot be read, the url is not usable, or no client can be made.
pub async fn endpoint(target: &Target) -> Result<Client, Failure> {
    let at = |e: ServingError| {
        let failure = e.to_failure();
        Failure { message: format!("`{}`: {}", target.name, failure.message), ..failure }
    };
    let key = match &target.api_key {
        None => None,
        Some(source) => Some(key::read(source).await.map_err(at)?),
    };
    Client::new(&target.url, target.engine, key, LIMITS).map_err(at)
}
