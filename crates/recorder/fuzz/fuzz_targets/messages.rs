//! Any bytes are a message or an error. A decoded message is encoded and decoded again.
//!
//! `cd crates/recorder && mkdir -p fuzz/corpus/messages && cargo +nightly fuzz run messages fuzz/corpus/messages
//! fuzz/seeds/messages`
#![no_main]

use std::fmt::Debug;
use std::sync::LazyLock;

use cellbed_link::Time;
use cellbed_recorder::secure::{HandshakeKeys, Opening, Progress, Secret};
use cellbed_recorder::wire::{
    Answer, Claim, Field, Header, Hello, Kind, Probe, Reader, Reply, Request, Welcome,
};
use libfuzzer_sys::fuzz_target;

static KEYS: LazyLock<HandshakeKeys> = LazyLock::new(|| HandshakeKeys::new(&Secret::new([1; 32])));

fuzz_target!(|bytes: &[u8]| {
    let _ = Kind::of(bytes);
    let mut reader = Reader::new(bytes);
    if let Ok(header) = Header::take(&mut reader) {
        assert_eq!([&header.encode()[..], reader.rest()].concat(), bytes);
    }
    comes_back::<Probe>(bytes);
    comes_back::<Hello>(bytes);
    comes_back::<Answer>(bytes);
    comes_back::<Welcome>(bytes);
    comes_back::<Option<Claim>>(bytes);
    comes_back::<Request>(bytes);
    comes_back::<Reply>(bytes);
    if let Ok(Reply::Report(report)) = Reply::decode(bytes) {
        assert!(report.arrivals.iter().count() <= bytes.len() / 2);
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

fn comes_back<T: Field + PartialEq + Debug>(bytes: &[u8]) {
    if let Ok(message) = T::decode(bytes) {
        assert_eq!(T::decode(&message.encode()), Ok(message));
    }
}
