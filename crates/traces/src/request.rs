//! A request: the recording to read, and the series to make.

use std::io::{Read, Seek};
use std::net::IpAddr;
use std::path::Path;

use serde::Deserialize;

use crate::error::Result;
use crate::series::{Imported, Part};
use crate::{capture, mahimahi};

/// The format and its options, which each format's module defines.
#[derive(Clone, Debug, Deserialize)]
#[serde(tag = "format", rename_all = "kebab-case")]
pub enum Request {
    /// A trace of Mahimahi, of one direction.
    Mahimahi {
        /// Requested direction.
        direction: Part,
    },
    /// A capture, pcap or pcapng.
    Capture {
        /// Words that the flow must have.
        #[serde(default)]
        flow: Vec<String>,
        /// All flows that have them.
        #[serde(default)]
        all_flows: bool,
        /// The device's address.
        #[serde(default)]
        device: Option<IpAddr>,
        /// The directions to keep.
        #[serde(default)]
        directions: Option<Vec<Part>>,
        /// An opportunity for each packet.
        #[serde(default)]
        each_packet: bool,
    },
}

/// Reads a recording into files of a folder.
pub fn import(source: impl Read + Seek, request: &Request, folder: &Path) -> Result<Imported> {
    match request {
        Request::Mahimahi { direction } => mahimahi(source, *direction, folder),
        Request::Capture {
            flow,
            all_flows,
            device,
            directions,
            each_packet,
        } => {
            let request = capture::Request {
                choice: capture::Choice {
                    words: flow.clone(),
                    all: *all_flows,
                },
                device: *device,
                parts: directions.clone(),
                each_packet: *each_packet,
            };
            capture::capture(source, &request, folder)
        }
    }
}
