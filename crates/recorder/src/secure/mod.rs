//! Protection against strangers: the shared secret, the keys derived from it, cookies, sealed messages, and the
//! client's side of the handshake. Pure: random bytes and time are arguments.
//!
//! `docs/reference/recorder-protocol.md` describes which attacks this withstands.

mod channel;
mod handshake;
mod secret;

pub use channel::{Channel, Filler, Opened, Rejected, ReplayWindow, Standing};
pub use handshake::{COOKIE_LIFE, Cookies, Handshake, HandshakeKeys, Opening, Progress};
pub(crate) use secret::hexadecimal;
pub use secret::{Secret, random_bytes};
