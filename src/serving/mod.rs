//! How a model server is spoken to, and what differs between `SGLang`, `vLLM` and llama-server.
//!
//! `client` sends requests and `chat` reads the streamed answer; `capabilities` holds the differences as data;
//! `load`, `load_phase`, `server_info`, `log_grammar` and `python_literal` are pure readers of what a server says about itself.
//! `workers` reads the workers of a router, and holds the only two requests that change one.
//! Nothing here decides what to ask or whether an answer is right; see `recall`.

pub mod capabilities;
pub mod chat;
pub mod client;
pub mod endpoint;
pub mod error;
#[cfg(test)]
pub(crate) mod fake;
pub mod key;
pub mod load;
pub mod load_phase;
pub mod log_grammar;
pub mod python_literal;
pub mod server_info;
pub mod workers;
