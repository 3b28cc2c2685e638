//! Segmentation offload as pure functions over bytes: splitting super-packets into segments, and joining segments.
//!
//! The kernel passes TCP and UDP data as super-packets of up to 64 KiB: one header, the payload of many segments, and
//! the payload length of a segment in a [`Vnet`] header. [`Layout`] finds the segments. The path model decides about
//! each segment. [`Run`] collects segments that leave together, and [`write_header`] writes their header. A run
//! contains only segments that the kernel would produce again from the super-packet, bit by bit.

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
