//! Protection against strangers: the shared secret, the keys derived from it, the handshake, sealed messages.
//! Pure: time is an argument.
//!
//! `docs/reference/recorder-protocol.md` describes which attacks this withstands.

mod channel;
mod handshake;
mod secret;

pub use channel::{Channel, Filler, Opened, Rejected, ReplayWindow, Standing};
pub use handshake::{Handshake, HandshakeKeys};
pub(crate) use secret::hexadecimal;
pub use secret::{Secret, random_bytes};
