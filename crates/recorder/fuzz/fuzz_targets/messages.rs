//! Any bytes are a message or none, and what is read is written and read again.
//!
//! `cd crates/recorder && mkdir -p fuzz/corpus/messages && cargo +nightly fuzz run messages fuzz/corpus/messages
//! fuzz/seeds/messages`
#![no_main]

use std::fmt::Debug;
use std::sync::LazyLock;

use cellbed_link::Time;
use cellbed_recorder::secure::{HandshakeKeys, Opening, Progress, Secret};
use cellbed_recorder::wire::{Answer, Claim, Header, Hello, Kind, Probe, Reply, Request, Welcome};
use libfuzzer_sys::fuzz_target;

static KEYS: LazyLock<HandshakeKeys> = LazyLock::new(|| HandshakeKeys::new(&Secret::new([1; 32])));

fuzz_target!(|bytes: &[u8]| {
    let _ = Kind::of(bytes);
    if let Ok((header, rest)) = Header::decode(bytes) {
        assert_eq!([&header.to_bytes()[..], rest].concat(), bytes);
    }
    if let Ok(probe) = Probe::decode(bytes) {
        assert_eq!(probe.to_bytes(), bytes);
    }
    comes_back(bytes, Hello::decode, Hello::encode);
    comes_back(bytes, Answer::decode, Answer::encode);
    comes_back(bytes, Welcome::decode, Welcome::encode);
    if let Ok(claim) = Claim::decode(bytes) {
        assert_eq!(Claim::decode(&Claim::to_bytes(claim)), Ok(claim));
    }
    comes_back(bytes, Request::decode, Request::encode);
    // What arrivals say in more bytes than needed is written in fewer, and more than a datagram has is not written at
    // all.
    if let Ok(reply) = Reply::decode(bytes)
        && bytes.len() < 1000
    {
        comes_back(bytes, Reply::decode, Reply::encode);
        if let Reply::Report(report) = reply {
            assert!(report.arrivals.len() <= bytes.len() / 2);
        }
    }
    assert_eq!(KEYS.of_client(bytes), None, "nobody guesses a code");
    if let Ok(hello) = Hello::decode(bytes) {
        assert!(KEYS.accept(&hello).is_none(), "nor a message of Noise");
    }
    let mut opening = Opening::new(&Secret::new([1; 32]), None, Time::ZERO);
    opening.step(Time::ZERO, &mut Vec::new());
    for _ in 0..2 {
        assert!(matches!(
            opening.receive(Time::ZERO, bytes),
            Progress::Waiting
        ));
    }
});

fn comes_back<T: PartialEq + Debug, E>(
    bytes: &[u8],
    decode: impl Fn(&[u8]) -> Result<T, E>,
    encode: impl Fn(&T, &mut Vec<u8>),
) {
    if let Ok(message) = decode(bytes) {
        let mut again = Vec::new();
        encode(&message, &mut again);
        let read = decode(&again);
        assert!(read.is_ok_and(|read| read == message));
    }
}
