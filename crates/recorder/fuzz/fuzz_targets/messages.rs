//! Any bytes are a message or an error. A decoded message is encoded and decoded again.
//!
//! `cd crates/recorder && mkdir -p fuzz/corpus/messages && cargo +nightly fuzz run messages fuzz/corpus/messages
//! fuzz/seeds/messages`
#![no_main]

use std::fmt::Debug;
use std::sync::LazyLock;

use cellbed_recorder::secure::{HandshakeKeys, Secret};
use cellbed_recorder::wire::{
    Echo, Encode, FRAME_BYTES, FrameReader, Header, Kind, Probe, Reply, Request, Welcome,
};
use libfuzzer_sys::fuzz_target;

static KEYS: LazyLock<HandshakeKeys> = LazyLock::new(|| HandshakeKeys::new(&Secret::new([1; 32])));

fuzz_target!(|bytes: &[u8]| {
    let _ = Kind::of(bytes);
    if let Ok((header, rest)) = Header::split(bytes) {
        let mut again = Vec::new();
        header.put(&mut again);
        assert_eq!([&again, rest].concat(), bytes);
    }
    comes_back::<Probe>(bytes);
    comes_back::<Welcome>(bytes);
    comes_back::<Echo>(bytes);
    comes_back::<Request>(bytes);
    comes_back::<Reply>(bytes);
    if let Ok(Reply::Report(report)) = Reply::decode(bytes) {
        assert!(report.arrivals.iter().count() <= bytes.len() / 2);
    }
    assert_eq!(KEYS.of_client(bytes), None, "nobody guesses a code");
    assert!(KEYS.accept(bytes).is_none(), "nor a message of Noise");
    let (mut handshake, hello) = KEYS.greet().unwrap();
    assert_eq!(handshake.read(bytes), None);
    assert_eq!(KEYS.rejection(bytes, &hello), None);
    let mut frames = FrameReader::default();
    frames.push(bytes);
    while let Ok(Some(frame)) = frames.take() {
        assert!((1..=FRAME_BYTES).contains(&frame.len()));
    }
});

fn comes_back<T: Encode + PartialEq + Debug>(bytes: &[u8]) {
    if let Ok(message) = T::decode(bytes) {
        assert_eq!(T::decode(&message.encode()), Ok(message));
    }
}
