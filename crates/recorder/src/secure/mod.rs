//! Protection against strangers: the shared secret, the keys derived from it, cookies, sealed messages, and the
//! client's side of the handshake. Pure: random bytes and time are arguments.
//!
//! `docs/reference/recorder-protocol.md` describes which attacks this withstands.

mod channel;
mod cookie;
mod handshake;
mod secret;
mod window;

pub use channel::{Channel, Filler, Opened, Rejected};
pub use cookie::{COOKIE_LIFE, Cookies};
pub use handshake::{Handshake, HandshakeKeys, Opening, Progress};
pub(crate) use secret::hexadecimal;
pub use secret::{Secret, random_bytes};
pub use window::{ReplayWindow, Standing};
