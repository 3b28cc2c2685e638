//! Any bytes are a message or none, and what is read is written and read again.
//!
//! `cd crates/recorder && mkdir -p fuzz/corpus/messages && cargo +nightly fuzz run messages fuzz/corpus/messages fuzz/seeds/messages`
#![no_main]

use std::fmt::Debug;

use cellbed_recorder::secure::{Channel, End, HandshakeKeys, Secret, SessionKeys};
use cellbed_recorder::wire::{
    CookieAnswer, Header, Hello, Kind, Probe, Rejection, Reply, Request, SessionId, Welcome,
};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let _ = Kind::of(bytes);
    if let Ok((header, rest)) = Header::decode(bytes) {
        assert_eq!([&header.to_bytes()[..], rest].concat(), bytes);
    }
    if let Ok(probe) = Probe::decode(bytes) {
        assert_eq!(probe.to_bytes(), bytes);
    }
    comes_back(bytes, Hello::decode, Hello::encode);
    comes_back(bytes, CookieAnswer::decode, CookieAnswer::encode);
    comes_back(bytes, Welcome::decode, Welcome::encode);
    comes_back(bytes, Rejection::decode, Rejection::encode);
    comes_back(bytes, Request::decode, Request::encode);
    // What arrivals say in more bytes than needed is written in fewer, and more than a datagram has is not written at all.
    if let Ok(reply) = Reply::decode(bytes)
        && bytes.len() < 1000
    {
        comes_back(bytes, Reply::decode, Reply::encode);
        if let Reply::Report(report) = reply {
            assert!(report.arrivals.len() <= bytes.len() / 2);
        }
    }
    let secret = Secret::new([1; 32]);
    assert_eq!(HandshakeKeys::new(&secret).of_client(bytes), None);
    let keys = SessionKeys::new(&secret, &[2; 32], &[3; 32], SessionId(0x3030_3030));
    assert!(
        Channel::new(End::Server, SessionId(0x3030_3030), keys)
            .open(&mut bytes.to_vec())
            .is_err()
    );
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
