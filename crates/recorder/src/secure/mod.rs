//! Protection against strangers: the shared secret, the keys derived from it, cookies, sealed messages, and the
//! client's side of the handshake. Pure: random bytes and time are arguments.
//!
//! `docs/reference/recorder-protocol.md` describes which attacks this withstands.

mod channel;
mod cookie;
mod filler;
mod keys;
mod noise;
mod opening;
mod secret;
mod window;

pub use channel::{Channel, Opened, Rejected, Unsealable};
pub use cookie::{COOKIE_LIFE, Cookies};
pub use filler::Filler;
pub use keys::HandshakeKeys;
pub use noise::{Handshake, Resumption};
pub use opening::{Opening, Progress};
pub use secret::{Secret, SecretError, random_bytes};
pub use window::{ReplayWindow, Standing};
