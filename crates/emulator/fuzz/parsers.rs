//! Functions of the fuzz targets, one per parser. They panic on an error.
//!
//! With the feature `fuzzing`, the crate includes this file, so that it reaches private parsers.

use std::io;
use std::path::Path;

use cellbed_link::language::Reader;
use cellbed_link::{Bytes, Direction, Duration, Time};
use serde_json::Value;

use crate::config::Config;
use crate::control::Command;
use crate::offload::{Layout, VNET_BYTES, Vnet};
use crate::packet::Header;

/// Any text is a configuration or gives a one-line error. All stages of a configuration carry packets.
pub fn configuration(text: &str) {
    let built = Config::parse(text).and_then(|config| config.build(no_file));
    match built {
        Ok(graph) => {
            for direction in graph.directions {
                let direction =
                    Direction::new(direction.stages, Time::ZERO).with_changes(direction.changes);
                carry(direction.expect("changes were checked"), text.as_bytes());
            }
        }
        Err(error) => assert!(!error.to_string().contains('\n'), "{error}"),
    }
}

/// Any text is a list of stages or gives an error. The stages carry packets.
pub fn stage_list(text: &str) {
    let Ok(tables) = serde_json::from_str::<Vec<Value>>(text) else {
        return;
    };
    let mut reader = Reader::new(no_file);
    let stages: Result<Vec<_>, _> = tables.into_iter().map(|it| reader.stage(it)).collect();
    if let Ok(stages) = stages {
        carry(Direction::new(stages, Time::ZERO), text.as_bytes());
    }
}

/// Any text is a command or gives an error.
pub fn command(text: &str) {
    if let Ok(Command::Change { to, .. }) = serde_json::from_str(text)
        && let Ok(stage) = Reader::new(no_file).stage(to)
    {
        carry(Direction::new(vec![stage], Time::ZERO), text.as_bytes());
    }
}

/// The parsers open no file.
fn no_file(_path: &Path) -> io::Result<io::Empty> {
    Err(io::ErrorKind::NotFound.into())
}

/// Any bytes are parsed as a packet or rejected.
pub fn packet(bytes: &[u8]) {
    if let Some(header) = Header::parse(bytes) {
        assert!(header.payload as usize <= bytes.len());
        let _ = (header.is_link_chatter(), header.tag(bytes));
    }
    if let Some((vnet, packet)) = bytes.split_first_chunk::<VNET_BYTES>() {
        let layout = Layout::of(Vnet::parse(vnet), packet);
        let sizes: usize = (0..layout.segments()).map(|it| layout.size(it)).sum();
        let repeated = usize::from(layout.segments() - 1) * usize::from(layout.header);
        assert_eq!(sizes, packet.len() + repeated);
    }
}

/// Send a packet for every three of `bytes`: two give its distance, one its size. None is lost, and time increases.
fn carry(mut direction: Direction<u32>, bytes: &[u8]) {
    let (mut now, mut latest) = (Time::ZERO, Time::ZERO);
    let (mut sent, mut ended) = (0u64, 0u64);
    for (packet, &[distance, shift, size]) in (0..).zip(bytes.as_chunks::<3>().0) {
        now += Duration::from_nanos(u64::from(distance) << (shift % 24));
        direction.accept(now, packet, Bytes(u64::from(size) * 7));
        sent += 1;
        while let Some(outcome) = direction.poll(now) {
            assert!(outcome.departed >= latest && outcome.departed >= outcome.arrived);
            latest = outcome.departed;
            match outcome.fate {
                cellbed_link::Fate::Doubled => sent += 1,
                _ => ended += 1,
            }
        }
        assert_eq!(sent, ended + direction.held().packets.0);
    }
}
