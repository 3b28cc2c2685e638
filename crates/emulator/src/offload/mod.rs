//! Segmentation offload as pure functions over bytes: what a super-packet consists of, and which segments make one.
//!
//! The kernel hands over TCP and UDP data as super-packets of up to 64 KiB: one header, the payload of many segments,
//! and the payload of each segment in a [`Vnet`] header. [`Layout`] finds the segments; the path model decides for each
//! of them; [`Run`] collects those that leave together and [`write_header`] gives them their header. A run is made only
//! of segments that the kernel would make again of the super-packet, to the bit.

mod header;
mod layout;
mod run;
mod vnet;

#[cfg(test)]
mod tests;

pub use header::{
    ACK, CWR, ECE, FIN, PSH, RST, SYN, get, is_intact, mark, seal, word, write_header,
};
pub use layout::{Layout, MOST_HEADER, Transport};
pub use run::{Run, View, single};
pub use vnet::{VNET_BYTES, Vnet};
