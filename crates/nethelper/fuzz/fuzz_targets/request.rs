//! Any arguments and any line are a request of the grammar or refused in one line.
//!
//! Arguments are separated by null bytes, as the kernel passes them.
//!
//! `cd crates/nethelper && mkdir -p fuzz/corpus/request && cargo +nightly fuzz run request fuzz/corpus/request fuzz/seeds/request`
#![no_main]

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;

use cellbed_nethelper::{Message, Request, networks_in_sight};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let arguments: Vec<OsString> = bytes
        .split(|byte| *byte == 0)
        .map(|argument| OsString::from_vec(argument.to_vec()))
        .collect();
    match Request::parse(&arguments) {
        Ok(Request::Serve(request)) => {
            let name = request.device(4_194_304);
            assert!(name.len() <= 15 && name.ends_with("-4194304"));
            assert!(request.private || (request.host.is_none() && !request.offline));
        }
        Ok(Request::Enter(request)) => {
            assert!(request.namespace > 2 && request.report > 2);
            assert!(!request.command.is_empty());
            assert!(request.resolv_conf.is_none_or(|path| path.is_absolute()));
        }
        Ok(Request::Clean) => {}
        Err(error) => assert!(!error.to_string().contains('\n')),
    }
    if let Ok(Message::Names(port)) = Message::parse(bytes) {
        assert!(port >= 1024);
    }
    if let Ok(text) = std::str::from_utf8(bytes) {
        let _ = networks_in_sight(text);
    }
});
