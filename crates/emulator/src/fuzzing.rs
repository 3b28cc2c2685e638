//! What the fuzz targets reach (see `fuzz/`); there only with `--cfg fuzzing`.

use cellbed_link::{Bytes, Fate, Outcome, Time};

use crate::config::Config;
use crate::offload::by_hand::{read_all, written};
use crate::offload::reference::wire;
use crate::offload::{Layout, Transport, VNET_BYTES, Vnet};
use crate::outbox::Outbox;
use crate::packet::Header;
use crate::pool::Pool;
use crate::{control, stages};

/// A configuration line: refused in one line, or built.
pub fn configuration(line: &str) {
    told(Config::parse(line).and_then(|config| stages::build(&config)));
}

/// A command line: refused in one line, or understood.
pub fn command(line: &str) {
    told(control::understand(line));
}

fn told<T>(result: crate::Result<T>) {
    if let Err(error) = result {
        assert!(!error.to_string().is_empty());
    }
}

/// A packet with the device's header before it, whatever it is: it can be read, taken apart, damaged and written, and what
/// leaves whole is as it came.
pub fn packet(bytes: &[u8]) {
    if bytes.len() <= VNET_BYTES || bytes.len() > 65_545 {
        return;
    }
    let Some(vnet) = bytes.first_chunk().map(Vnet::parse) else {
        return;
    };
    let packet = &bytes[VNET_BYTES..];
    let header = Header::parse(packet);
    let layout = Layout::of(vnet, packet);
    let (mut pool, mut outbox) = (Pool::new(0), Outbox::default());
    let segments = read_all(&mut pool, &[bytes.to_vec()]);
    // The last byte chooses what is written together and which bit is damaged.
    let cuts = usize::from(bytes[bytes.len() - 1]);
    for (number, &segment) in segments.iter().enumerate() {
        outbox.push(segment, &pool);
        pool.refer(segment.slot, 1);
        if cuts > 128 && number % cuts == 0 {
            let pieces = written(&mut outbox, &mut pool);
            assert!(!pieces.is_empty());
        }
    }
    let rest = written(&mut outbox, &mut pool);
    assert!(cuts > 128 || rest == [bytes]);
    if header.is_none() {
        return; // the emulator sends it nowhere
    }
    if layout.transport != Transport::Opaque {
        // The open checksum of such a packet is any number, and one that was wrong stays wrong: it is not compared.
        let open = usize::from(vnet.checksum_start + vnet.checksum_offset);
        let whole = wire(bytes);
        assert_eq!(whole.len(), segments.len());
        for (segment, mut expected) in segments.into_iter().zip(whole) {
            let bit = cuts % (8 * expected.len());
            let damaged = pool.settle(&Outcome {
                packet: segment,
                size: Bytes(expected.len() as u64),
                arrived: Time::ZERO,
                released: Time::ZERO,
                departed: Time::ZERO,
                fate: Fate::Delivered,
                marked: false,
                corrupt_bit: Some(bit as u32),
            });
            expected[bit / 8] ^= 0x80 >> (bit % 8);
            expected[open..open + 2].fill(0);
            outbox.push(damaged.expect("it was delivered"), &pool);
            let mut out = written(&mut outbox, &mut pool);
            assert_eq!(out.len(), 1);
            out[0][VNET_BYTES + open..][..2].fill(0);
            assert_eq!(out[0][VNET_BYTES..], expected);
        }
    }
}
